"""What surrounds simulated processes: time, a network, disks and a plan of faults; and what is recorded of it.

It knows no protocol and no party. `parties.testing.lab` runs anybody's actors in it, `parties.testing.world`
runs servers and clients. Only the surroundings are simulated: all random choices follow from the seed, so one seed
gives one transcript.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, TypeVar

import trio
from trio.testing import MockClock

from fsl_async.errors import FslError, MisuseError, leaves, sole_error
from fsl_async.protocols.machine import Machine
from parties.concurrency import RecurringEvent
from parties.simulation.scheduling import seeded_scheduling
from parties.testing.blobs import BlobDisk, SimulatedBlobs
from parties.testing.chart.legend import Legend
from parties.testing.chart.sequence_chart import Chart
from parties.testing.disk import Disk, DiskStore
from parties.testing.faults import Crash, FaultBase, party_of
from parties.testing.injector import Announces, Injector, to_anybody
from parties.testing.processes import (
    RESTART_SECONDS,
    Ended,
    Life,
    Live,
    Process,
    Recoverable,
    is_of_surroundings,
)
from parties.testing.recorder import Step, listening
from parties.testing.story import Began, Entry, Failed, Killed, Left, Lost, StoryEvent
from parties.testing.wires import Wires
from parties.watch import Note
from transport.needs_trio import NeedsTrio

EPOCH = 1.7e9
"""The wall clocks' time when a world begins, in seconds since 1970."""

HORIZON = 3_600.0
"""Virtual seconds after which a world that has not ended raises `HorizonError`."""

ROWS = 40
"""How many rows of the chart a `HorizonError` shows."""


class HorizonError(FslError):
    """A world has reached its horizon before the test ended; the message shows the end of the chart."""


class Surroundings:
    """Simulated processes under a plan of faults.

    Args:
        seed: of all random choices.
        faults: what goes wrong.
        machines: by the name that faults and charts use, the machines whose transitions are recorded.
        horizon: virtual seconds after which the world ends with an error.
        legend: how a chart calls what happens.
        announces: between which parties the first write after a transition counts.
        recoverable: after which errors a process is started again.

    Attributes:
        faults: the plan.
        injector: injects the faults.
        wires: the network.
        processes: by party, its process.
        disks: by party, its disk.
        blob_disks: by party, where its blobs lie.
        transcript: every message that a party sent, in order, with the time.
        story: messages and what parties told, with faults and the lives of processes, in order; see `Chart`.
        ended: processes that ended with an error and were not started again.
        steps: every step of every machine, in order.
    """

    def __init__(
        self,
        seed: int,
        faults: Sequence[FaultBase],
        machines: Mapping[str, Machine[Any]],
        horizon: float = HORIZON,
        legend: Legend | None = None,
        announces: Announces = to_anybody,
        recoverable: Recoverable = is_of_surroundings,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.injector = Injector(seed, faults, announces)
        self.wires = Wires(self.injector, self._lose)
        self.processes: dict[str, Process] = {}
        self.disks: defaultdict[str, Disk] = defaultdict(Disk)
        self.blob_disks: defaultdict[str, BlobDisk] = defaultdict(BlobDisk)
        self.transcript: list[tuple[float, Note]] = []
        self.story: list[Entry] = []
        self.ended: list[Ended] = []
        self.steps: list[Step] = []
        self.legend = legend or Legend()
        self._machines = machines
        self._horizon = horizon
        self._recoverable = recoverable
        self._changed = RecurringEvent()
        self._over = False

    # ---- for tests

    def process(self, name: str) -> Process:
        """A party's process, over all its lives."""
        if name not in self.processes:
            self.processes[name] = Process(name, Random(f"{self.seed}/{name}"))
        return self.processes[name]

    def end(self) -> None:
        """End the story: what happens while the processes are stopped is not part of it."""
        self._over = True

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.injector.now

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is looked at whenever a party has told something, ended or left."""
        while not condition():
            await self._changed.wait()

    def waits(self) -> str:
        """How the parties stand and what to do about it, for the message of a `HorizonError`."""
        running = ", ".join(name for name, process in sorted(self.processes.items()) if process.running)
        over = (f"{each.party} ended with {type(each.error).__name__}: {each.error}" for each in self.ended)
        return "; ".join(["the test still waits", f"{running or 'no party'} still runs", *over])

    # ---- processes

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let time pass, and faults strike, until cancelled."""
        self.injector.begin()
        self.injector.kill = self._crash
        self.injector.tell = lambda fault: self.tell(party_of(fault), fault)
        with listening(self._heard, self._machines):
            async with trio.open_nursery() as self._nursery:
                self.begin()
                for seconds, crash in self.injector.timed:
                    self._nursery.start_soon(self._strike, seconds, crash)
                self._nursery.start_soon(self._watch_horizon)
                task_status.started()

    def begin(self) -> None:
        """Called when time begins to pass."""

    def keep(self, name: str, live: Live) -> None:
        """Keep a process running, life after life, until one ends by itself or with an unrecoverable error."""
        self._nursery.start_soon(self._live_on, self.process(name), live)

    async def open_disk(self, life: Life) -> DiskStore:
        """The store of a process, as one life of it finds it on its disk."""
        return await DiskStore(self.disks[life.process.name], life, self.injector).read()

    def open_blobs(self, life: Life) -> SimulatedBlobs:
        """The blobs of a process, as one life of it finds them."""
        self.blob_disks[life.process.name].open()
        return self.share_blobs(life, life.process.name)

    def share_blobs(self, life: Life, owner: str) -> SimulatedBlobs:
        """The blobs of another process, as one life of this one uses them."""
        return SimulatedBlobs(self.blob_disks[owner], life, self.injector)

    def wall_clock(self, name: str) -> float:
        """The time in seconds since 1970, as a party's clock shows it."""
        return EPOCH + self.now + self.injector.clock_error(name)

    async def _watch_horizon(self) -> None:
        """End a world in which a test waits in vain, because virtual time would never run out."""
        await trio.sleep(self._horizon)
        raise HorizonError(
            f"the world is {self._horizon:g} s old, and {self.waits()}. A test that takes longer says so with "
            f"horizon=. The end of what happened:\n{Chart.of(self).last(ROWS)}"
        )

    async def _strike(self, seconds: float, crash: Crash) -> None:
        """Wait for the time of a crash, and let it strike."""
        await trio.sleep(self.injector.until(seconds))
        if self.process(crash.party).running:
            self.injector.strike(crash)
            self._crash(crash)

    def _crash(self, crash: Crash) -> None:
        self.process(crash.party).kill(crash.down)

    async def _live_on(self, process: Process, live: Live) -> None:
        while process.down != float("inf"):
            process.down = RESTART_SECONDS
            if await self._run_life(process.begin(), live):
                return
            await trio.sleep(process.down)

    async def _run_life(self, life: Life, live: Live) -> bool:
        """Run one life; returns whether its process is finished. What a killed process still does has no effect."""
        process = life.process
        self._heard_of(process.name, Began(life.number))
        life.ending.append(partial(self._died, process))
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_enter, life, live)
                self._heard_of(process.name, Left())
                return True
        except BaseException as error:
            if life.alive:
                return self._failed(life, error)
        await trio.lowlevel.checkpoint_if_cancelled()
        return False

    def _failed(self, life: Life, error: BaseException) -> bool:
        """Handle an error of a life; returns whether the process is finished. A defect or a misuse is raised."""
        life.alive = False
        reasons = leaves(error)
        if life.mistaken or not all(isinstance(reason, FslError) for reason in reasons):
            raise error
        self._heard_of(life.process.name, Failed(reasons[0]))
        if all(self._recoverable(reason) for reason in reasons):
            return False
        self.ended.append(Ended(life.process.name, self.now, reasons[0]))
        return True

    def _died(self, process: Process) -> None:
        self._heard_of(process.name, Killed(process.down))
        self.disks[process.name].crash(process.rng)
        for blobs in self.blob_disks.values():
            blobs.crash(process.name, Random(f"{self.seed}/blobs/{process.name}/{process.lives}"))
        self.wires.die(process.name)

    # ---- records

    def tell(self, party: str, told: StoryEvent) -> None:
        """Add what happened to the story."""
        if not self._over:
            self.story.append(Entry(self.now, party, told))

    def note(self, sender: str, note: Note) -> None:
        """Add a message to the transcript and the story."""
        self.transcript.append((self.now, note))
        self.tell(sender, note)

    def _heard(self, step: Step) -> None:
        self.injector.hear(step)
        self.steps.append(step)

    def _heard_of(self, party: str, told: StoryEvent) -> None:
        self.tell(party, told)
        if isinstance(told, Killed | Failed | Left):
            self._changed.set()

    def _lose(self, note: Note) -> None:
        self.tell(note.sender, Lost(note))


async def _enter(life: Life, live: Live) -> None:
    life.enter()
    await live(life)


def refuse_unknown(faults: Sequence[FaultBase], known: Collection[str], remedy: str) -> None:
    """Refuse faults of unknown parties, because they would never strike, and their test would prove nothing.

    Raises:
        MisuseError: a fault names a party that there is not.
    """
    for fault in faults:
        for party in fault.parties():
            if party not in known:
                raise MisuseError(f"{fault}: there is no party {party!r}, only {', '.join(known)}; {remedy}")


SurroundingsT = TypeVar("SurroundingsT", bound=Surroundings)


@asynccontextmanager
async def entered(made: SurroundingsT) -> AsyncIterator[SurroundingsT]:
    """Run a world inside this context, on a clock that jumps (`trio.testing.MockClock`).

    Raises:
        MisuseError: the clock does not jump.
        HorizonError: the world has reached its horizon.
    """
    NeedsTrio("a simulated world").require_trio()
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock) or clock.autojump_threshold == float("inf"):
        raise MisuseError(
            "a simulated world needs a clock that jumps: in a test, ask for the fixture `autojump_clock`; "
            "elsewhere, trio.run(..., clock=trio.testing.MockClock(autojump_threshold=0))"
        )
    with seeded_scheduling(made.seed), sole_error():
        async with trio.open_nursery() as nursery:
            await nursery.start(made.run)
            try:
                yield made
            finally:
                made.end()
                nursery.cancel_scope.cancel()
