"""Injects the faults of a plan at the points that they name.

Counters and labels stay the same when other faults are removed from the plan, so that a plan can be shrunk: random
choices are drawn for each connection and process from a source of its own, never from a common one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TypeAlias, TypeVar, assert_never, cast

import msgspec
import trio

from fsl_async.errors import StorageError
from parties.storage.store import Change, DiskFullError, Erase, Keep, Put, Record
from parties.testing.blobs import BlobFaults
from parties.testing.disk import DiskFaults
from parties.testing.faults import (
    CALM,
    AtCommit,
    AtPeerTransition,
    AtSend,
    AtTime,
    AtTransition,
    AtWrite,
    BrokenWrite,
    Crash,
    Cut,
    Delay,
    FaultBase,
    FullDisk,
    Moment,
    Partition,
    SkewedClock,
    SlowDisk,
    SpoiltBlobs,
    party_of,
)
from parties.testing.processes import Life
from parties.testing.recorder import Step, Transition
from parties.testing.wires import Broken, Connection, NetworkConditions

LATENCY = 0.2
"""The longest time in seconds that a message takes without a fault."""

SYNCING = 0.02
"""The longest time in seconds that a sync takes without a fault; it exposes messages that leave too early."""

FaultT = TypeVar("FaultT", bound=FaultBase)
SpellT = TypeVar("SpellT", Partition, SlowDisk, FullDisk, SpoiltBlobs)

CrashPoint: TypeAlias = tuple[str, Transition, Moment]
"""A party, a transition of one of its machines, and a moment around it."""

Announces: TypeAlias = Callable[[Connection], bool]
"""Whether what is written to a connection can tell a peer of a transition."""


def to_anybody(connection: Connection) -> bool:
    """Every write can."""
    return True


class Injector(NetworkConditions, DiskFaults, BlobFaults):
    """Decides for the processes, disks and network of a world what goes wrong.

    Args:
        seed: of all random choices.
        faults: the plan; what it has no rule for is left to others, which report it with `strike`.
        announces: between which parties the first write after a transition counts.

    Attributes:
        fired: the faults that have struck, in order.
        crash_points: the crash points at which a party has died.
        kill: called with a crash that strikes.
        committed: called with a party and a transition once its event is committed, before the party learns of it.
        tell: called with every fault that strikes for the first time.
    """

    def __init__(self, seed: int, faults: Sequence[FaultBase], announces: Announces = to_anybody) -> None:
        self._seed = seed
        self._faults: dict[tuple[type, str], list[FaultBase]] = defaultdict(list)
        for fault in faults:
            self._faults[type(fault), party_of(fault)].append(fault)
        self._announces = announces
        self._at_peers = [
            (fault, fault.point)
            for fault in faults
            if isinstance(fault, Crash) and isinstance(fault.point, AtPeerTransition)
        ]
        self._began = 0.0
        self._latency: dict[Connection, Random] = {}
        self._stepped: dict[str, dict[str, Step]] = {}
        self._committing: dict[str, Transition] = {}
        self._announced: dict[str, Transition] = {}
        self._occurred: Counter[tuple[str, Transition]] = Counter()
        self._written: Counter[tuple[str, str]] = Counter()
        self._ordinals: dict[tuple[str, int, str], int] = {}
        self._writing: dict[str, frozenset[str]] = {}
        self._held: dict[tuple[str, str], float] = {}
        self._blob_chances: dict[str, Random] = {}
        self.fired: list[FaultBase] = []
        self.crash_points: set[CrashPoint] = set()
        self.kill: Callable[[Crash], None] = lambda crash: None
        self.committed: Callable[[str, Transition], None] = lambda party, transition: None
        self.tell: Callable[[FaultBase], None] = lambda fault: None

    def begin(self) -> None:
        """Start the world's time now."""
        self._began = trio.current_time()

    @property
    def timed(self) -> list[tuple[float, Crash]]:
        """The crashes that strike at a fixed time, with that."""
        crashes = (fault for faults in self._faults.values() for fault in faults if isinstance(fault, Crash))
        return [(crash.point.seconds, crash) for crash in crashes if isinstance(crash.point, AtTime)]

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return trio.current_time() - self._began

    @property
    def calm(self) -> bool:
        """Whether all faults are over."""
        return self.now >= CALM

    def until(self, seconds: float) -> float:
        """Seconds from now until a time of the plan."""
        return max(0.0, seconds - self.now)

    def strike(self, fault: FaultBase) -> None:
        """Record that a fault has struck."""
        if fault not in self.fired:
            self.fired.append(fault)
            self.tell(fault)

    def hear(self, step: Step) -> None:
        """Remember a transition whose event may be about to be committed."""
        self._stepped.setdefault(step.life.process.name, {})[step.transition.machine] = step

    def hold(self, sender: str, receiver: str, until: float) -> None:
        """Let what one party sends to another arrive no earlier than at a time, in seconds since the world began."""
        self._held[sender, receiver] = until

    def is_at(self, party: str, point: AtTransition | AtPeerTransition, taken: Transition) -> bool:
        """Whether the transition that a party has just committed is the one that a plan names, and its occurrence."""
        wanted = Transition(point.machine, point.state, point.event, point.after)
        return taken == wanted and self._occurred[party, taken] == point.occurrence

    def clock_error(self, party: str) -> float:
        """Seconds by which a party's wall clock is off at this moment."""
        error = 0.0
        for fault in self._of(SkewedClock, party):
            if fault.begin <= self.now < CALM:
                self.strike(fault)
                error += fault.seconds
        return error

    # ---- the disk

    async def before_write(self, life: Life, changes: tuple[Change, ...]) -> None:
        """See `DiskFaults.before_write`."""
        name = life.process.name
        self._committing.pop(name, None)
        for step in self._stepped.get(name, {}).values():
            if any(_records(change, step) for change in changes):
                self._committing[name] = step.transition
                self._occurred[name, step.transition] += 1
        self._count_writes(name, changes)
        self._crash_at_commit(life, "before write")
        await self._trouble(name, life.process.commits)

    async def _trouble(self, name: str, number: int) -> None:
        """What a process's disk does to its n-th change: it may be slow, full or broken."""
        for slow in self._during(SlowDisk, name):
            await trio.sleep(slow.each)
        for _ in self._during(FullDisk, name):
            raise DiskFullError("the simulated disk is full")
        for broken in self._of(BrokenWrite, name):
            if broken.number == number and not self.calm:
                self.strike(broken)
                raise StorageError("the simulated disk cannot write: input/output error")

    def _count_writes(self, name: str, changes: tuple[Change, ...]) -> None:
        """Record which of the names in the plan this commit writes."""
        self._writing[name] = frozenset(
            name_part for name_part in self._planned(name) if any(name_part in _name(change) for change in changes)
        )
        self._written.update((name, name_part) for name_part in self._writing[name])

    def _planned(self, name: str) -> set[str]:
        """The parts of names at whose writes the plan lets a process crash."""
        return {crash.point.name_part for crash in self._of(Crash, name) if isinstance(crash.point, AtWrite)}

    async def before_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        """See `DiskFaults.before_sync`."""
        await trio.sleep(SYNCING * life.process.rng.random() ** 2)
        self._crash_at_commit(life, "before sync")

    async def after_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        """See `DiskFaults.after_sync`."""
        name = life.process.name
        if name in self._committing:
            self._announced[name] = label = self._committing[name]
            self.committed(name, label)
            self._crash_peer(name, label)
        self._crash_at_commit(life, "after write")

    def _crash_at_commit(self, life: Life, moment: Moment) -> None:
        process, name = life.process, life.process.name
        label = self._committing.get(name)
        for crash in self._of(Crash, process.name):
            match crash.point:
                case AtCommit(number=number, moment=at) if number == process.commits and at == moment:
                    self._crash(life, crash, label, moment)
                case AtTransition(moment=at) as point if at == moment and label is not None:
                    self._crash_at_label(life, crash, point, label)
                case AtWrite(name_part=name_part, number=number, moment=at) if (
                    at == moment and name_part in self._writing[name]
                ):
                    if self._written[name, name_part] == number:
                        self._crash(life, crash, label, moment)

    def _crash_peer(self, name: str, label: Transition) -> None:
        """Kill another party, if the plan says so for this party's committed transition."""
        for crash, point in self._at_peers:
            due = crash.party != name and self.is_at(name, point, label)
            if due and not self.calm and crash not in self.fired:
                self.strike(crash)
                self.kill(crash)

    # ---- blobs

    async def before_change(self, life: Life, name: str) -> int:
        """See `BlobFaults.before_change`."""
        life.process.commits += 1
        number = life.process.commits
        self._written.update(
            (life.process.name, name_part) for name_part in self._planned(life.process.name) if name_part in name
        )
        for name_part in self._planned(life.process.name):  # several may be on their way at a time
            self._ordinals[life.process.name, number, name_part] = self._written[life.process.name, name_part]
        self._crash_at_change(life, name, number, "before write")
        await self._trouble(life.process.name, number)
        return number

    async def before_named(self, life: Life, name: str, number: int) -> None:
        """See `BlobFaults.before_named`."""
        await trio.sleep(SYNCING * self._of_blobs(life).random() ** 2)
        self._crash_at_change(life, name, number, "before sync")

    async def after_change(self, life: Life, name: str, number: int) -> None:
        """See `BlobFaults.after_change`."""
        self._crash_at_change(life, name, number, "after write")

    def found(self, life: Life, content: memoryview | None) -> memoryview | None:
        """See `BlobFaults.found`."""
        for spoilt in self._during(SpoiltBlobs, life.process.name):
            if not content or spoilt.harm == "missing":
                return None
            altered, place = bytearray(content), self._of_blobs(life).randrange(len(content))
            altered[place] ^= 1 << self._of_blobs(life).randrange(8)
            return memoryview(bytes(altered))
        return content

    def _of_blobs(self, life: Life) -> Random:
        """The source of choices about a process's blobs."""
        return self._blob_chances.setdefault(life.process.name, Random(f"{self._seed}/blobs/{life.process.name}"))

    def _crash_at_change(self, life: Life, name: str, number: int, moment: Moment) -> None:
        for crash in self._of(Crash, life.process.name):
            match crash.point:
                case AtCommit(number=planned, moment=at) if planned == number and at == moment:
                    self._crash(life, crash, None, moment)
                case AtWrite(name_part=name_part, number=planned, moment=at) if name_part in name and at == moment:
                    if self._ordinals.get((life.process.name, number, name_part)) == planned:
                        self._crash(life, crash, None, moment)

    # ---- the network

    def arrival(self, connection: Connection, now: float) -> float:
        """See `NetworkConditions.arrival`."""
        chance = self._latency.get(connection)
        if chance is None:
            chance = self._latency[connection] = Random(f"{self._seed}/{connection}")
        latest = now + LATENCY * chance.random() ** 4 + self._delay(connection)
        latest = max(latest, self._began + self._held.get((connection.sender, connection.receiver), 0.0))
        for partition in self._during(Partition, connection.sender):
            if partition.receiver == connection.receiver:
                latest = max(latest, self._began + partition.begin + partition.seconds)
        return latest

    def _delay(self, connection: Connection) -> float:
        slow = 0.0
        for party in (connection.sender, connection.receiver):
            for delay in self._of(Delay, party):
                if delay.connection == connection.number and not self.calm and connection.dialler == party:
                    self.strike(delay)
                    slow += delay.seconds
        return slow

    def cut(self, connection: Connection, written: int, size: int) -> Iterator[Broken]:
        """See `NetworkConditions.cut`."""
        for fault in self._of(Cut, connection.dialler):
            counted = fault.outward == (connection.sender == connection.dialler)
            if fault.connection == connection.number and counted and not self.calm:
                left = fault.after - written
                if 0 <= left < size:
                    self.strike(fault)
                    yield Broken(left, fault.lost)

    def outlives(self, connection: Connection) -> bool:
        """See `NetworkConditions.outlives`."""
        return Random(f"{self._seed}/{connection}/outlives").random() < 0.5

    def before_send(self, life: Life, connection: Connection) -> None:
        """See `NetworkConditions.before_send`."""
        self._crash_at_send(life, connection, "before send")

    def after_send(self, life: Life, connection: Connection) -> None:
        """See `NetworkConditions.after_send`."""
        self._crash_at_send(life, connection, "after send")
        if self._announces(connection):
            self._announced.pop(life.process.name, None)

    def _crash_at_send(self, life: Life, connection: Connection, moment: Moment) -> None:
        process = life.process
        label = self._announced.get(process.name) if self._announces(connection) else None
        for crash in self._of(Crash, process.name):
            match crash.point:
                case AtSend(number=number, moment=at) if number == process.sends and at == moment:
                    self._crash(life, crash, label, moment)
                case AtTransition(moment=at) as point if at == moment and label is not None:
                    self._crash_at_label(life, crash, point, label)

    # ---- crashes

    def _crash_at_label(self, life: Life, crash: Crash, point: AtTransition, label: Transition) -> None:
        if self.is_at(life.process.name, point, label):
            self._crash(life, crash, label, point.moment)

    def _crash(self, life: Life, crash: Crash, label: Transition | None, moment: Moment) -> None:
        if self.calm or crash in self.fired:
            return
        self.strike(crash)
        if label is not None:
            self.crash_points.add((life.process.name, label, moment))
        self.kill(crash)
        life.require_alive()

    # ---- the plan

    def _of(self, kind: type[FaultT], party: str) -> Sequence[FaultT]:
        return cast("Sequence[FaultT]", self._faults.get((kind, party), ()))

    def _during(self, kind: type[SpellT], party: str) -> Iterator[SpellT]:
        """The faults of a party that have begun and not yet ended."""
        for fault in self._of(kind, party):
            if fault.begin <= self.now < min(fault.begin + fault.seconds, CALM):
                self.strike(fault)
                yield fault


def _records(change: Change, step: Step) -> bool:
    """Whether a change commits the event of a step."""
    return isinstance(change, Record) and change.entry == msgspec.msgpack.encode(step.event)


def _name(change: Change) -> str:
    match change:
        case Record(journal=name) | Keep(key=name) | Put(key=name) | Erase(prefix=name):
            return name
    assert_never(change)
