"""Channels between parties in one process, with the same handshake, records and limits as over TCP.

An address is any name. Each stream has a bounded buffer each way. trio's own memory streams take any amount at once;
here a sender waits for its receiver, as over a network, so that a deadlock of two parties that both only send is found
in memory too.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import trio

from transport.errors import UnreachableError
from transport.listener import LISTEN, Listener, Service, Transport

if TYPE_CHECKING:
    from typing_extensions import Buffer

BUFFER_SIZE = 2**18


class Pipe:
    """One direction: at most `BUFFER_SIZE` bytes between a writer and a reader; a subclass may decide how they pass."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._size = 0
        self._changed = trio.lowlevel.ParkingLot()
        self._writing = trio.Lock()
        self._reading = trio.Lock()
        self._writer_gone = False
        self._reader_gone = False

    async def write(self, data: Buffer) -> None:
        """Takes all of the data, whenever there is room."""
        with one_at_a_time(self._writing, "sending"), memoryview(data) as view:
            await trio.lowlevel.checkpoint()
            self._require_writable()
            start = 0
            while start < len(view):
                await self._room()
                portion = view[start : start + BUFFER_SIZE - self._size]
                self._put(portion)
                start += len(portion)

    def _put(self, portion: memoryview) -> None:
        self._buffer += portion
        self._size += len(portion)
        self._changed.unpark_all()

    async def wait_writable(self) -> None:
        """Waits until there is room."""
        with one_at_a_time(self._writing, "sending"):
            await trio.lowlevel.checkpoint()
            await self._room()

    async def read(self, most: int) -> bytes:
        """Returns what is there, at least one byte; none once the writer is gone."""
        with one_at_a_time(self._reading, "receiving"):
            await trio.lowlevel.checkpoint()
            return await self._read(most)

    async def _read(self, most: int) -> bytes:
        self._require_readable()
        while not self._buffer and not self._writer_gone:
            await self._changed.park()
            self._require_readable()
        with memoryview(self._buffer) as view:
            data = bytes(view[:most])
        del self._buffer[: len(data)]
        self._size -= len(data)
        self._changed.unpark_all()
        return data

    def close_writer(self) -> None:
        """Takes no more; what is there can still be read."""
        self._writer_gone = True
        self._changed.unpark_all()

    def close_reader(self) -> None:
        """Has nobody who reads any more."""
        self._reader_gone = True
        self._buffer.clear()
        self._size = 0
        self._changed.unpark_all()

    async def _room(self) -> None:
        self._require_writable()
        while self._size >= BUFFER_SIZE:
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

    def __init__(self, incoming: Pipe, outgoing: Pipe, *, steady: bool = False) -> None:
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
    there, back = Pipe(), Pipe()
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


_BACKLOG = 1_024


class MemoryNetwork(Transport):
    """A network of its own; endpoints reach each other within one `MemoryNetwork` only.

    Args:
        steady: whether connections need no signs of life, because nothing can come between the two ends.
    """

    def __init__(self, *, steady: bool = False) -> None:
        self._steady = steady
        self._queues: dict[str, trio.MemorySendChannel[tuple[trio.abc.Stream, str]]] = {}
        self._numbers = itertools.count(1)

    async def connect(self, address: str) -> trio.abc.Stream:
        """Makes a pair of streams and queues one end with the listener; see `Transport.connect`."""
        near, far = self.make_pair()
        try:
            await self._queues[address].send((far, self._origin()))
        except (KeyError, trio.BrokenResourceError) as error:
            raise UnreachableError(
                f"nothing listens at {address!r} in this network; these do: {sorted(self._queues)}"
            ) from error
        return near

    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves under a name; see `Transport.listen`."""
        LISTEN.require_trio()
        if address in self._queues:
            raise UnreachableError(f"there is already a listener at {address!r}; take another name")
        sending, receiving = trio.open_memory_channel[tuple[trio.abc.Stream, str]](_BACKLOG)
        self._queues[address] = sending
        try:
            task_status.started(address)
            await Listener(service).serve(receiving.receive)
        finally:
            del self._queues[address]
            await _turn_away(receiving)

    def make_pair(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        """Makes every connection of this network; a subclass can record, delay or cut them here."""
        return pipe_pair(steady=self._steady)

    def _origin(self) -> str:
        """Names the dialling end for the listener's limits: every connection counts as a host of its own."""
        return f"memory-{next(self._numbers)}"


async def _turn_away(queue: trio.MemoryReceiveChannel[tuple[trio.abc.Stream, str]]) -> None:
    """Closes the queue, and the connections in it that will never be accepted."""
    with queue, suppress(trio.WouldBlock):
        while True:
            stream, _ = queue.receive_nowait()
            await trio.aclose_forcefully(stream)
