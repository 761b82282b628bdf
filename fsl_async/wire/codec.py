"""Messages to bytes and back, with a limit on everything that a hostile peer could make large.

Which messages a sender may use is the reader's argument: a closed union of `Message` types, ours or those of a protocol
of your own, for which `MessageSet` checks it.

A message on the wire is its head, one MessagePack map (at most 64 KiB), and then its bulk data: the rest of what came.
The bulk is handed on as a view of the received bytes: it is never copied and never re-encoded.

A head has one encoding: the map that was read is encoded again, and must be the bytes that came. So fields in another
order, a key twice, a number in a longer form or a field that is left out are refused, by whoever reads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, get_args, get_type_hints

import msgpack
import msgspec

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.secrecy import Discreet

UNREADABLE = (ValueError, TypeError, RecursionError, msgpack.exceptions.UnpackException, msgspec.MsgspecError)
"""What decoders raise of bytes that they cannot read: also of text that is no UTF-8, and of what is nested too deep."""

CONTROL_LIMIT = 64 * 1024
BULK_LIMIT = 2**32 - 1
DEPTH_LIMIT = 4
_WITHIN = "`$[0]"
"""How msgspec says that something is wrong in the message of an `_only`."""

MessageT = TypeVar("MessageT")


class Message(Discreet, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """The base of all wire messages.

        class Bid(Message, frozen=True, tag="bid"):
            price: int

    Fields are public to the receiver; one that is named in `hidden` is not printed.

    Attributes:
        carries_bulk: whether bulk data may follow.
    """

    carries_bulk: ClassVar[bool] = True


def also(what: str, holds: Callable[[Any], bool]) -> msgspec.Meta:
    """What a field must be that its type cannot say: in words, and the check that readers make."""
    return msgspec.Meta(extra={what: holds})


class MessageSet:
    """The messages of a protocol of your own: a closed union under a name, with the same limits as ours.

        AUCTION = MessageSet("auction 1", Commitment | Bid)

    The header of a message has at most 64 KiB, its lists at most 64 entries, its maps 32, its texts 256 characters, and
    nothing is nested deeper than four levels; what is larger travels as bulk.

    Args:
        name: the protocol's name and version, which both sides compare in their handshake: 1 to 64 characters.
        union: the message types that either side may send.
        most_bulk: the most bytes of bulk data that a message may carry.

    Raises:
        MisuseError: the name is too long or empty, a member is no message, or two have the same tag.
    """

    def __init__(self, name: str, union: Any, most_bulk: int = 0) -> None:
        members: tuple[Any, ...] = get_args(union) or (union,)
        if not (1 <= len(name) <= 64 and name.isascii() and name.isprintable()):
            raise MisuseError(f"a protocol's name is 1 to 64 printable ASCII characters, not {name!r}")
        if not isinstance(most_bulk, int):
            raise MisuseError(
                f"most_bulk is a number of bytes, not {most_bulk!r}; several messages are one union: A | B"
            )
        if not 0 <= most_bulk <= BULK_LIMIT:
            raise MisuseError(f"most_bulk={most_bulk:,}; a message carries 0 to {BULK_LIMIT:,} bytes of bulk")
        for member in members:
            if not (isinstance(member, type) and issubclass(member, Message)):
                raise MisuseError(f"{member!r} is no message; derive it from `Message`, frozen=True")
            if member.__struct_config__.omit_defaults:
                raise MisuseError(f"{member.__name__} leaves fields out, and all are sent always; omit no defaults")
        tags = [member.__struct_config__.tag for member in members]
        for tag in tags:
            if tags.count(tag) > 1:
                raise MisuseError(f"two messages of {name!r} have the tag {tag!r}; give one of them another tag=")
        self.name = name
        self.union = union
        self.members = members
        self.most_bulk = most_bulk

    def require(self, message: Message, bulk: int) -> None:
        """Refuse a message that the other side would refuse.

        Raises:
            MisuseError: it is not of the union, or has too much bulk; or a field is not of its type or beyond a limit.
        """
        if type(message) not in self.members:
            raise MisuseError(f"{type(message).__name__} is no message of {self.name!r}")
        try:
            decode(encode(message)[0], self.union, "this party")
        except (PeerViolationError, TypeError, ValueError, OverflowError) as error:
            raise MisuseError(f"{type(message).__name__} would be refused: {error}") from error
        if bulk > self.most_bulk:
            raise MisuseError(f"{bulk:,} bytes of bulk; a message of {self.name!r} carries {self.most_bulk:,} at most")


class Received(NamedTuple, Generic[MessageT]):
    """A decoded message and its bulk data (empty where it has none)."""

    message: MessageT
    bulk: memoryview


class Begun(NamedTuple, Generic[MessageT]):
    """A decoded message of which the bulk data has yet to come, and where that begins in the whole message."""

    message: MessageT
    start: int


def encode(message: Message, *bulk: Buffer) -> list[Buffer]:
    """The parts of one message on the wire; bulk parts are concatenated, not copied."""
    return [_ENCODER.encode(message), *bulk]


_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
"""Equal messages are equal bytes, so what has no order of its own is sorted."""


def decode(data: Buffer, union: Any, sender: str) -> Received[Any]:
    """Read one message of the given union.

    Args:
        data: the whole message.
        union: the message types that the sender may use here.
        sender: whom to name when it is not one of them.

    Raises:
        PeerViolationError: anything but the one encoding of a message of the union, and bulk only where it has any.
    """
    view = memoryview(data)
    begun = decode_beginning(view, len(view), union, sender)
    return Received(begun.message, view[begun.start :])


def decode_beginning(data: Buffer, total: int, union: Any, sender: str) -> Begun[Any]:
    """Read one message of the given union, of whose bulk data only some may have come.

    Args:
        data: the beginning of the message, with all that comes before its bulk data.
        total: the bytes of the whole message.
        union: the message types that the sender may use here.
        sender: whom to name when it is not one of them.

    Raises:
        PeerViolationError: it does not begin with the one encoding of a message of the union, or has bulk that the
            message has not.
    """
    view = memoryview(data)
    try:
        plain, used = _unpack_head(view)
        # Without builtin_types text would pass for bytes, as base64.
        message = msgspec.convert([plain], _only(union), builtin_types=(bytes,)).message
        _refuse_wrong(message)
        _refuse_other_forms(message, plain, bytes(view[:used]))
    except UNREADABLE as error:
        where = str(error).replace(_WITHIN, "`$")
        raise PeerViolationError(sender, f"sent a message that cannot be read: {where}") from error
    if used < total and not message.carries_bulk:
        tag = message.__struct_config__.tag
        raise PeerViolationError(sender, f"sent bytes behind a message of the type {tag!r}, which has no bulk")
    return Begun(message, used)


@cache
def _only(union: Any) -> Any:
    """A structure of one message of a union: msgspec remembers how to read a structure, and not how to read a union."""
    return msgspec.defstruct("Only", [("message", union)], array_like=True)


def _unpack_head(view: memoryview) -> tuple[Any, int]:
    unpacker = msgpack.Unpacker(
        max_buffer_size=CONTROL_LIMIT,
        max_str_len=256,
        max_bin_len=CONTROL_LIMIT,
        max_array_len=64,
        max_map_len=32,
        max_ext_len=0,
        strict_map_key=True,
    )
    unpacker.feed(view[:CONTROL_LIMIT])
    plain = unpacker.unpack()
    _refuse_deep(plain, DEPTH_LIMIT)
    return plain, unpacker.tell()


def _refuse_deep(plain: Any, levels: int) -> None:
    if not isinstance(plain, dict | list):
        return
    if levels == 0:
        raise ValueError(f"nested deeper than {DEPTH_LIMIT}")
    for item in plain.values() if isinstance(plain, dict) else plain:
        _refuse_deep(item, levels - 1)


@cache
def _also(kind: type[Message]) -> tuple[tuple[str, str, Callable[[Any], bool]], ...]:
    """What is asked of a message's fields besides their types: the field, in words, and the check."""
    return tuple(
        (name, what, holds)
        for name, hint in get_type_hints(kind, include_extras=True).items()
        for meta in getattr(hint, "__metadata__", ())
        for what, holds in (getattr(meta, "extra", None) or {}).items()
    )


def _refuse_wrong(message: Message) -> None:
    for name, what, holds in _also(type(message)):
        if not holds(getattr(message, name)):
            raise ValueError(f"Expected {what} - at `$.{name}`")


def _refuse_other_forms(message: Message, plain: Any, came: bytes) -> None:
    expected = _ENCODER.encode(message)
    if came == expected:
        return
    for name in message.__struct_encode_fields__:
        if name not in plain:
            raise ValueError(f"Object missing required field `{name}`: all are sent, also where nothing is said")
    pairs = zip(came, expected, strict=False)
    first = next((at for at, (byte, other) in enumerate(pairs) if byte != other), len(expected))
    raise ValueError(
        f"byte {first} is not as in its one encoding: `type` first, then all fields in order, each once and in its "
        "shortest form"
    )
