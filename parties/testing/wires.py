"""A network in memory whose connections take time, break and fall silent.

Every connection is two lanes, one each way. What is written to a lane arrives in order, after the time that the
`Weather` gives it; a cut may fall anywhere in it. Both ends know whose processes they belong to, and end with them;
what a process had written by then may still arrive, for the operating system has it.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import trio

from parties.testing.processes import Life, current_life
from transport import MemoryNetwork
from transport.errors import UnreachableError
from transport.pipe import one_at_a_time

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Broken", "Connection", "Weather", "Wires"]

BUFFER_SIZE = 2**18


@dataclass(frozen=True)
class Connection:
    """Which connection a lane belongs to.

    Attributes:
        sender: the process that writes to the lane.
        receiver: the one that reads from it.
        dialler: which of the two has made the connection.
        number: of the connection, among those that its dialler has made, from 1.
    """

    sender: str
    receiver: str
    dialler: str
    number: int


class Broken(NamedTuple):
    """How a connection breaks: after so many bytes; what is on its way is lost with it, or still arrives."""

    through: int
    lost: bool


class Weather(ABC):
    """What the network does to what is written to it."""

    @abstractmethod
    def arrival(self, connection: Connection, now: float) -> float:
        """When something that is written now arrives."""

    @abstractmethod
    def cut(self, connection: Connection, written: int, size: int) -> Iterator[Broken]:
        """Where in `size` bytes, after `written` earlier ones, the connection breaks, if it does."""

    @abstractmethod
    def outlives(self, connection: Connection) -> bool:
        """Whether what a process has written to it still arrives when the process is killed."""

    @abstractmethod
    def before_send(self, life: Life, connection: Connection) -> None:
        """A process is about to write; may kill it."""

    @abstractmethod
    def after_send(self, life: Life, connection: Connection) -> None:
        """A process has written; may kill it."""


class _Lane:
    """One direction of a connection."""

    def __init__(self, connection: Connection, weather: Weather) -> None:
        self.connection = connection
        self._weather = weather
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._latest = 0.0
        self._written = 0
        self._changed = trio.lowlevel.ParkingLot()
        self._writer_gone = False
        self._reader_gone = False
        self.broken = False
        self.back: tuple[_Lane, ...] = ()

    async def write(self, data: Buffer) -> None:
        """Take all of it.

        Raises:
            trio.BrokenResourceError: the connection broke, maybe in the middle.
        """
        await trio.lowlevel.checkpoint()
        self._require_writable()
        view = memoryview(data).cast("B")
        start = 0
        while start < len(view):
            await self._room()
            portion = bytes(view[start : start + BUFFER_SIZE - self._size])
            for broken in self._weather.cut(self.connection, self._written, len(portion)):
                self._put(portion[: broken.through])
                self.break_both(lost=broken.lost)
                raise trio.BrokenResourceError("the connection is cut")
            self._put(portion)
            start += len(portion)

    def _put(self, portion: bytes) -> None:
        if portion:
            now = trio.current_time()
            self._latest = max(self._latest, self._weather.arrival(self.connection, now))
            self._chunks.append((self._latest, portion))
            self._size += len(portion)
            self._written += len(portion)
            self._changed.unpark_all()

    async def wait_writable(self) -> None:
        await trio.lowlevel.checkpoint()
        await self._room()

    async def read(self, most: int) -> bytes:
        await trio.lowlevel.checkpoint()
        while True:
            if self._reader_gone:
                raise trio.ClosedResourceError("this end is closed")
            if self._chunks and self._chunks[0][0] <= trio.current_time():
                return self._take(most)
            if not self._chunks and self.broken:
                raise trio.BrokenResourceError("the connection is broken")
            if not self._chunks and self._writer_gone:
                return b""
            with trio.move_on_at(self._chunks[0][0] if self._chunks else float("inf")):
                await self._changed.park()

    def _take(self, most: int) -> bytes:
        at, chunk = self._chunks.popleft()
        data, rest = chunk[:most], chunk[most:]
        if rest:
            self._chunks.appendleft((at, rest))
        self._size -= len(data)
        self._changed.unpark_all()
        return data

    def close_writer(self) -> None:
        self._writer_gone = True
        self._changed.unpark_all()

    def close_reader(self) -> None:
        self._reader_gone = True
        self._forget()

    def break_both(self, *, lost: bool) -> None:
        """Nothing more gets into this lane and the one back; what is on its way is lost, or still arrives."""
        for lane in (self, *self.back):
            lane.break_off(lost=lost)

    def break_off(self, *, lost: bool) -> None:
        """Nothing more gets into this lane."""
        self.broken = True
        if lost:
            self._forget()
        self._changed.unpark_all()

    def _forget(self) -> None:
        self._chunks.clear()
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
        if self._reader_gone or self.broken:
            raise trio.BrokenResourceError("the other end is gone")


class _End(trio.abc.Stream):
    """One end of a connection, in one life of a process."""

    def __init__(self, incoming: _Lane, outgoing: _Lane, weather: Weather, life: Life | None) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._weather = weather
        self._life = life
        self._sending = trio.Lock()
        self._receiving = trio.Lock()

    def belong_to(self, life: Life | None) -> None:
        """End with a process."""
        self._life = life
        if life is not None:
            life.ending.append(self._break_off)

    async def send_all(self, data: Buffer) -> None:
        with one_at_a_time(self._sending, "sending"):
            if self._life is not None:
                self._require_alive(self._life)
                self._life.process.sends += 1
                self._weather.before_send(self._life, self._outgoing.connection)
                self._require_alive(self._life)
            await self._outgoing.write(data)
            if self._life is not None:
                self._weather.after_send(self._life, self._outgoing.connection)
                self._require_alive(self._life)

    async def wait_send_all_might_not_block(self) -> None:
        with one_at_a_time(self._sending, "sending"):
            await self._outgoing.wait_writable()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        most = BUFFER_SIZE if max_bytes is None else operator.index(max_bytes)
        if most < 1:
            raise ValueError("max_bytes must be at least 1")
        with one_at_a_time(self._receiving, "receiving"):
            return await self._incoming.read(most)

    async def aclose(self) -> None:
        self._outgoing.close_writer()
        self._incoming.close_reader()
        await trio.lowlevel.checkpoint()

    def _break_off(self) -> None:
        self._incoming.break_off(lost=True)
        self._outgoing.break_off(lost=not self._weather.outlives(self._outgoing.connection))

    @staticmethod
    def _require_alive(life: Life) -> None:
        if not life.alive:
            raise trio.BrokenResourceError("this process has been killed")


class Wires(MemoryNetwork):
    """The network; addresses are the names of processes."""

    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self._weather = weather
        self._dialling = ("", "", 0)
        self._listening: dict[str, Life] = {}

    def listens(self, life: Life) -> None:
        """A process is going to listen under its name."""
        self._listening[life.process.name] = life

    async def connect(self, address: str) -> trio.abc.Stream:
        """See `Transport.connect`."""
        life, there = current_life(), self._listening.get(address)
        if there is None or not there.alive:
            raise UnreachableError(f"nothing listens at {address!r} now")
        name, number = "", 0
        if life is not None:
            life.require_alive()
            life.process.dials += 1
            name, number = life.process.name, life.process.dials
        self._dialling = (name, address, number)
        return await super().connect(address)

    def _make_pair(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        dialler, listener, number = self._dialling
        there = _Lane(Connection(dialler, listener, dialler, number), self._weather)
        back = _Lane(Connection(listener, dialler, dialler, number), self._weather)
        there.back, back.back = (back,), (there,)
        near, far = (_End(back, there, self._weather, None), _End(there, back, self._weather, None))
        near.belong_to(current_life())
        far.belong_to(self._listening[listener])
        return near, far
