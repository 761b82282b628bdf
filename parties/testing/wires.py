"""A network in memory whose connections are slow, break and stall.

Every connection is two lanes, one in each direction. What is written to a lane arrives in order, at the time that the
`NetworkConditions` decide; a connection may break after any byte. Both ends belong to processes and are closed when
these are killed; what a process had written by then may still arrive, because the operating system has it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import trio

from parties.testing.processes import Life, current_life
from parties.watch import Note
from transport import MemoryNetwork, Service
from transport.errors import UnreachableError
from transport.memory import Pipe, PipeStream

if TYPE_CHECKING:
    from typing_extensions import Buffer


_HANDSHAKE = 8 + 48 + 1_088
"""Bytes that a dialler writes before its first message: see `transport.handshake`."""


@dataclass(frozen=True)
class Connection:
    """A lane's connection and direction.

    Attributes:
        sender: the process that writes to the lane.
        receiver: the process that reads from it.
        dialler: the one of the two that made the connection.
        number: the connection's number among those that the dialler has made, from 1.
    """

    sender: str
    receiver: str
    dialler: str
    number: int


class Broken(NamedTuple):
    """A broken connection: how many bytes get through, and whether bytes in transit are lost."""

    through: int
    lost: bool


class NetworkConditions(ABC):
    """Decides how the simulated network treats what is written to it."""

    @abstractmethod
    def arrival(self, connection: Connection, now: float) -> float:
        """The time at which data that is written now arrives."""

    @abstractmethod
    def cut(self, connection: Connection, written: int, size: int) -> Iterator[Broken]:
        """Where the connection breaks, if it does, within `size` bytes that follow `written` earlier ones."""

    @abstractmethod
    def outlives(self, connection: Connection) -> bool:
        """Whether data that a process has written still arrives after the process is killed."""

    @abstractmethod
    def before_send(self, life: Life, connection: Connection) -> None:
        """Called before a process writes; may kill it."""

    @abstractmethod
    def after_send(self, life: Life, connection: Connection) -> None:
        """Called after a process has written; may kill it."""


class _Post:
    """Follows messages, which the network sees as bytes only: which of them arrive, and which are lost.

    Args:
        lose: called with every message that does not arrive.
    """

    def __init__(self, lose: Callable[[Note], None]) -> None:
        self.lose = lose
        self._announced: defaultdict[tuple[str, str], list[Note]] = defaultdict(list)
        self._latest: dict[tuple[str, str], _Lane] = {}

    def announce(self, note: Note) -> None:
        """A message is what its sender writes to its receiver next; the one that was announced last comes first."""
        self._announced[note.sender, note.receiver].append(note)

    def written(self, note: Note) -> None:
        """A message is what its sender has just written to its receiver."""
        lane = self._latest.get((note.sender, note.receiver))
        if lane is not None:
            lane.carry(note)

    def wrote(self, lane: _Lane) -> None:
        """Something was written to a lane, perhaps the beginning of a message."""
        between = lane.connection.sender, lane.connection.receiver
        self._latest[between] = lane
        waiting = self._announced.get(between)
        if waiting and lane.is_past_handshake:
            note = waiting.pop()
            lane.carry(note, bulk=note.bulk)

    def fail(self, sender: str, receiver: str) -> None:
        """Nothing that was announced is written: there is no connection, or no sender any more."""
        for note in self._announced.pop((sender, receiver), []):
            self.lose(note)

    def die(self, sender: str) -> None:
        """A process was killed."""
        for between in [between for between in self._announced if between[0] == sender]:
            self.fail(*between)


class _Lane(Pipe):
    """One direction of a connection."""

    def __init__(self, connection: Connection, conditions: NetworkConditions, post: _Post) -> None:
        super().__init__()
        self.connection = connection
        self._conditions = conditions
        self._post = post
        self._carried: deque[tuple[int, Note]] = deque()
        self._taken = 0
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._latest = 0.0
        self._written = 0
        self.broken = False
        self.back: tuple[_Lane, ...] = ()

    async def write(self, data: Buffer) -> None:
        """Write all of the data.

        Raises:
            trio.BrokenResourceError: the connection broke, possibly in the middle of the data.
        """
        try:
            await super().write(memoryview(data).cast("B"))
        except trio.BrokenResourceError:
            self._post.fail(self.connection.sender, self.connection.receiver)
            raise

    def _put(self, portion: memoryview) -> None:
        for broken in self._conditions.cut(self.connection, self._written, len(portion)):
            self._pass(portion[: broken.through])
            self.break_both(lost=broken.lost)
            raise trio.BrokenResourceError("the connection is cut")
        self._pass(portion)

    def _pass(self, portion: memoryview) -> None:
        if portion:
            now = trio.current_time()
            self._latest = max(self._latest, self._conditions.arrival(self.connection, now))
            self._chunks.append((self._latest, bytes(portion)))
            self._size += len(portion)
            self._written += len(portion)
            self._post.wrote(self)
            self._changed.unpark_all()

    @property
    def is_past_handshake(self) -> bool:
        """Whether what was written last can be a message."""
        return self._written > _HANDSHAKE

    def carry(self, note: Note, bulk: int = 0) -> None:
        """A message ends with what was written last, but for so much bulk."""
        self._carried.append((self._written + bulk, note))

    async def _read(self, most: int) -> bytes:
        while True:
            self._require_readable()
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
        self._taken += len(data)
        while self._carried and self._carried[0][0] <= self._taken:
            self._carried.popleft()
        self._changed.unpark_all()
        return data

    def close_reader(self) -> None:
        self._reader_gone = True
        self._forget()

    def break_both(self, *, lost: bool) -> None:
        """Accept no more data in both directions; data in transit is lost, or still arrives."""
        for lane in (self, *self.back):
            lane.break_off(lost=lost)

    def break_off(self, *, lost: bool) -> None:
        """Accept no more data in this lane."""
        self.broken = True
        if lost:
            self._forget()
        self._changed.unpark_all()

    def _forget(self) -> None:
        while self._carried:
            self._post.lose(self._carried.popleft()[1])
        self._chunks.clear()
        self._size = 0
        self._changed.unpark_all()

    def _require_writable(self) -> None:
        super()._require_writable()
        if self.broken:
            raise trio.BrokenResourceError("the other end is gone")


class _End(PipeStream):
    """One end of a connection, in one life of a process, which cuts it when it ends."""

    def __init__(self, incoming: _Lane, outgoing: _Lane, conditions: NetworkConditions, life: Life | None) -> None:
        super().__init__(incoming, outgoing)
        self._lanes = incoming, outgoing
        self._conditions = conditions
        self._life = life
        if life is not None:
            life.ending.append(self._break_off)

    async def send_all(self, data: Buffer) -> None:
        connection = self._lanes[1].connection
        if self._life is not None:
            self._require_alive(self._life)
            self._life.process.sends += 1
            self._conditions.before_send(self._life, connection)
            self._require_alive(self._life)
        await super().send_all(data)
        if self._life is not None:
            self._conditions.after_send(self._life, connection)
            self._require_alive(self._life)

    def _break_off(self) -> None:
        incoming, outgoing = self._lanes
        incoming.break_off(lost=True)
        outgoing.break_off(lost=not self._conditions.outlives(outgoing.connection))

    @staticmethod
    def _require_alive(life: Life) -> None:
        if not life.alive:
            raise trio.BrokenResourceError("this process has been killed")


def _unseen(note: Note) -> None:
    pass


class Wires(MemoryNetwork):
    """The simulated network; its addresses are any names.

    Args:
        conditions: what happens to what is written.
        lose: called with every message that does not arrive, of those that `announce` or `written` has told.
    """

    def __init__(self, conditions: NetworkConditions, lose: Callable[[Note], None] = _unseen) -> None:
        super().__init__()
        self._conditions = conditions
        self._post = _Post(lose)
        self._dialling = ("", "", 0)
        self._listening: dict[str, Life] = {}
        self.announce = self._post.announce
        self.written = self._post.written
        self.die = self._post.die

    def listens(self, life: Life, address: str = "") -> None:
        """Let a life of a process listen at an address; by default under the process's name."""
        self._listening[address or life.process.name] = life

    async def listen(
        self, address: str, service: Service, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """See `Transport.listen`."""
        life = current_life()
        if life is not None:
            self.listens(life, address)
        await super().listen(address, service, task_status=task_status)

    async def connect(self, address: str) -> trio.abc.Stream:
        """See `Transport.connect`."""
        life, there = current_life(), self._listening.get(address)
        if there is None or not there.alive:
            self._post.fail(life.process.name if life else "", there.process.name if there else address)
            raise UnreachableError(f"nothing listens at {address!r} now")
        name, number = "", 0
        if life is not None:
            life.require_alive()
            life.process.dials += 1
            name, number = life.process.name, life.process.dials
        self._dialling = (name, address, number)
        return await super().connect(address)

    def make_pair(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        """Makes a connection under this network's conditions, one lane for each direction."""
        dialler, address, number = self._dialling
        life = self._listening[address]
        listener = life.process.name
        there = _Lane(Connection(dialler, listener, dialler, number), self._conditions, self._post)
        back = _Lane(Connection(listener, dialler, dialler, number), self._conditions, self._post)
        there.back, back.back = (back,), (there,)
        near = _End(back, there, self._conditions, current_life())
        return near, _End(there, back, self._conditions, life)
