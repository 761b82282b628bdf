"""Two ends of a stream inside one process, with a bounded buffer each way.

trio's own memory streams take any amount at once. Here a sender waits for its receiver, as over a network, so that a
deadlock of two parties that both only send is found in memory too.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from typing_extensions import Buffer


BUFFER_SIZE = 2**18


class _Pipe:
    """One direction: at most `BUFFER_SIZE` bytes between a writer and a reader."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._changed = trio.lowlevel.ParkingLot()
        self._writing = trio.Lock()
        self._reading = trio.Lock()
        self._writer_gone = False
        self._reader_gone = False

    async def write(self, data: Buffer) -> None:
        with one_at_a_time(self._writing, "sending"), memoryview(data) as view:
            await trio.lowlevel.checkpoint()
            self._require_writable()
            start = 0
            while start < len(view):
                await self._room()
                portion = view[start : start + BUFFER_SIZE - len(self._buffer)]
                self._buffer += portion
                start += len(portion)
                self._changed.unpark_all()

    async def wait_writable(self) -> None:
        with one_at_a_time(self._writing, "sending"):
            await trio.lowlevel.checkpoint()
            await self._room()

    async def read(self, most: int) -> bytes:
        with one_at_a_time(self._reading, "receiving"):
            await trio.lowlevel.checkpoint()
            self._require_readable()
            while not self._buffer and not self._writer_gone:
                await self._changed.park()
                self._require_readable()
            with memoryview(self._buffer) as view:
                data = bytes(view[:most])
            del self._buffer[: len(data)]
            self._changed.unpark_all()
            return data

    def close_writer(self) -> None:
        self._writer_gone = True
        self._changed.unpark_all()

    def close_reader(self) -> None:
        self._reader_gone = True
        self._buffer.clear()
        self._changed.unpark_all()

    async def _room(self) -> None:
        self._require_writable()
        while len(self._buffer) >= BUFFER_SIZE:
            await self._changed.park()
            self._require_writable()

    def _require_writable(self) -> None:
        if self._writer_gone:
            raise trio.ClosedResourceError("this end is closed")
        if self._reader_gone:
            raise trio.BrokenResourceError("the other end is closed")

    def _require_readable(self) -> None:
        if self._reader_gone:
            raise trio.ClosedResourceError("this end is closed")


class PipeStream(trio.abc.Stream):
    """One end; `pipe_pair` makes two that belong together.

    Attributes:
        steady: whether the other end cannot vanish unnoticed, as it can over a network.
    """

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, *, steady: bool = False) -> None:
        self.steady = steady
        self._incoming = incoming
        self._outgoing = outgoing

    async def send_all(self, data: Buffer) -> None:
        """Sends all of `data`, waiting whenever the other end is `BUFFER_SIZE` bytes behind."""
        await self._outgoing.write(data)

    async def wait_send_all_might_not_block(self) -> None:
        """Waits until there is room."""
        await self._outgoing.wait_writable()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Returns what is there, at least one byte; none means that the other end is closed."""
        most = BUFFER_SIZE if max_bytes is None else operator.index(max_bytes)
        if most < 1:
            raise ValueError("max_bytes must be at least 1")
        return await self._incoming.read(most)

    async def aclose(self) -> None:
        """Closes both directions; what is already on its way can still be read by the other end."""
        self._outgoing.close_writer()
        self._incoming.close_reader()
        await trio.lowlevel.checkpoint()


def pipe_pair(*, steady: bool = False) -> tuple[PipeStream, PipeStream]:
    """Returns the two ends of a new stream."""
    there, back = _Pipe(), _Pipe()
    return PipeStream(back, there, steady=steady), PipeStream(there, back, steady=steady)


@contextmanager
def one_at_a_time(lock: trio.Lock, doing: str) -> Iterator[None]:
    """Lets one task at a time do something on this end; a second one fails at once.

    Raises:
        trio.BusyResourceError: another task is doing it.
    """
    try:
        lock.acquire_nowait()
    except trio.WouldBlock:
        raise trio.BusyResourceError(f"another task is {doing} on this end") from None
    try:
        yield
    finally:
        lock.release()
