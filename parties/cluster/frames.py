"""What a server and the process that talks to Dask for it say over two pipes: msgpack, and arrays as bytes behind it.

    length (4 bytes, big-endian) | a message | the arrays that it names, one after the other

Rule: the server believes nothing that comes from there: it decodes what is described here and nothing else, and no
message makes an object of a kind that it names.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.wire.codec import UNREADABLE

if TYPE_CHECKING:
    import numpy.typing as npt
    import trio


HIDDEN = (
    "Dask cannot be loaded: {}; under systemd, it needs ProcSubset=all (examples/deployment/fsl-async-cluster.conf)"
)

PREFIX = 4

PIECE = 1024 * 1024

LONGEST = 64 * 1024 * 1024
"""Bytes of a message without its arrays: lists of clients are the longest."""

NUMBERS = re.compile(r"[<|][iu][1248]")
"""The element types of partial sums and answers: whole numbers, as numpy writes their types."""

DIMENSIONS = 8

ReceiveExactly: TypeAlias = Callable[[int], Awaitable[bytearray]]


class Begin(msgspec.Struct, frozen=True, tag=True):
    """The first word to the process: whose workers to find, and what it must not be able to read."""

    where: str
    belongs: str
    certificates: tuple[str, str, str] | None
    closed: tuple[str, ...]


class Call(msgspec.Struct, frozen=True, tag=True):
    """See `Cluster.call`."""

    number: int
    worker: str
    action: str
    order: bytes


class GiveUp(msgspec.Struct, frozen=True, tag=True):
    """Nobody waits for that call any more."""

    number: int


class Begun(msgspec.Struct, frozen=True, tag=True):
    """The first word from the process: which of the closed files it can read all the same."""

    readable: tuple[str, ...]


class Here(msgspec.Struct, frozen=True, tag=True):
    """The workers that are there."""

    members: dict[str, str]


class Away(msgspec.Struct, frozen=True, tag=True):
    """The cluster cannot be reached."""

    why: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """A setting is wrong, or Dask cannot be used."""

    why: str


class ArrayForm(msgspec.Struct, frozen=True):
    """The type of an array's elements, and its shape."""

    numbers: str
    shape: tuple[int, ...]


class Answered(msgspec.Struct, frozen=True, tag=True):
    """What a worker has returned; its arrays follow."""

    number: int
    report: bytes
    arrays: tuple[ArrayForm, ...] = ()


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A call has come to nothing."""

    number: int
    why: str


Asked: TypeAlias = Begin | Call | GiveUp
Told: TypeAlias = Begun | Here | Away | Refused | Answered | Failed

ASKED: msgspec.msgpack.Decoder[Asked] = msgspec.msgpack.Decoder(Asked)
TOLD: msgspec.msgpack.Decoder[Told] = msgspec.msgpack.Decoder(Told)

MessageT = TypeVar("MessageT")


def framed(message: Asked | Told) -> bytes:
    """A message's bytes, with their length before them."""
    content = msgspec.msgpack.encode(message)
    return len(content).to_bytes(PREFIX, "big") + content


def receiving(stream: trio.abc.ReceiveStream) -> ReceiveExactly:
    """Reads a stream in pieces of given lengths; EOFError where it ends before."""
    held = bytearray()

    async def receive(count: int) -> bytearray:
        while len(held) < count:
            more = await stream.receive_some(PIECE)
            if not more:
                raise EOFError
            held.extend(more)
        found = held[:count]
        del held[:count]
        return found

    return receive


async def read(receive: ReceiveExactly, decoder: msgspec.msgpack.Decoder[MessageT]) -> MessageT:
    """What the server asks next (`ASKED`), or the process says (`TOLD`).

    Raises:
        MisuseError: it is not understood.
        EOFError: the pipe has ended.
    """
    length = int.from_bytes(await receive(PREFIX), "big")
    if length > LONGEST:
        raise MisuseError(f"a message of {length:,} bytes; {LONGEST:,} at most")
    try:
        return decoder.decode(await receive(length))
    except UNREADABLE as error:
        raise MisuseError(f"a message that is not understood: {error}") from error


def form_of(array: npt.NDArray[Any]) -> ArrayForm:
    """How an array is sent.

    Raises:
        MisuseError: it is none of whole numbers.
    """
    return _checked(ArrayForm(array.dtype.str, array.shape))


async def array_of(receive: ReceiveExactly, form: ArrayForm) -> npt.NDArray[Any]:
    """The array that comes next. It takes no more memory than bytes have come.

    Raises:
        MisuseError: it is none of whole numbers.
        EOFError: the pipe has ended.
    """
    import numpy as np

    numbers = np.dtype(_checked(form).numbers)
    content = await receive(prod(form.shape) * numbers.itemsize)
    try:
        return np.frombuffer(content, dtype=numbers).reshape(form.shape)
    except ValueError as error:  # of no elements, and yet of more than can be counted in another dimension
        raise MisuseError(f"an array in the shape {form.shape}: {error}") from error


def _checked(form: ArrayForm) -> ArrayForm:
    if not NUMBERS.fullmatch(form.numbers) or len(form.shape) > DIMENSIONS or any(size < 0 for size in form.shape):
        raise MisuseError(f"an array of {form.numbers!r} in the shape {form.shape}; whole numbers are expected")
    return form
