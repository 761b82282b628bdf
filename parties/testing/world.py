"""A world of simulated parties: two servers that are kept running, and clients, each a process with a disk of its own.

The parties are the deployed ones, down to handshakes and records. What differs is around them: time is virtual, the
network and the disks are simulated, and a plan of faults says what goes wrong. All that happens by chance follows from
the seed: one seed, one transcript.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import trio
from trio.testing import MockClock

from fsl_async.error_groups import leaves, sole_error
from fsl_async.errors import ChannelError, FslError, MisuseError, StorageError
from fsl_async.protocols import round as round_protocol
from fsl_async.task import Task
from fsl_async.wire.messages import Message
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import InlineLane
from parties.concurrency import RecurringEvent
from parties.errors import RequestDeniedError, ServerBusyError
from parties.events import RoundSettled, ServerEvent
from parties.outcome import Model, RoundReport
from parties.server.limits import Schedule
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import SERVERS, Network, Note
from parties.simulation.scheduling import seeded_scheduling
from parties.testing.disk import Disk, DiskStore
from parties.testing.faults import AtTime, Crash, Fault, GiveUp, parties_of, party_of
from parties.testing.injector import Injector
from parties.testing.processes import Life, Process
from parties.testing.recorder import Step, listening
from parties.testing.story import Began, Entry, Failed, Killed, Left, Told
from parties.testing.wires import Wires

__all__ = ["Ended", "HorizonError", "World", "world"]

EPOCH = 1.7e9
"""What wall clocks show when a world begins, in seconds since 1970."""

HORIZON = 3_600.0
"""Seconds of its own time after which a world that nobody has ended is given up."""

ROWS = 40
"""How much of the chart says what a world was doing then."""

PAUSE = 1.0
ALL_ROUNDS = 10**6
"""Seconds until a process is started again that has ended by itself, as a service manager would."""

Behaviour: TypeAlias = Callable[[Client], Awaitable[None]]
"""What a client does in one life; when it returns, the client has left for good."""

Live: TypeAlias = Callable[[Life], Awaitable[None]]
"""What a process does in one life."""

PASSING = (ChannelError, StorageError, ServerBusyError)
"""Errors after which a process is started again."""

MakeServer: TypeAlias = Callable[[ServerSetup], Server]
MakeClient: TypeAlias = Callable[[ClientSetup], Client]


@dataclass(frozen=True)
class Ended:
    """A process that ended with an error."""

    party: str
    at: float
    error: BaseException


class HorizonError(FslError):
    """A world has come to its horizon, and what a test waits for has not happened; the message shows its last part."""


@dataclass(eq=False)
class World:
    """Simulated parties under a plan of faults; made by `world`.

    Attributes:
        task: what is learnt.
        seed: of everything that happens by chance.
        network: makes the parties.
        injector: strikes with the faults.
        processes: by party.
        disks: by party.
        servers: S0 and S1, each in its present life.
        transcript: every message that a party sent, in order, with the time.
        happenings: what the servers told, likewise.
        story: both of them, with faults and the lives of processes, in order; see `parties.testing.chart.chart`.
        settled: by server, its account of each round, by number.
        models: by server, the model after each round, by number; 0 is the start.
        ended: processes that ended with an error, and were not killed.
        steps: every step of every machine, in order.
        contradictions: where a server that was started again differs from what it was.
    """

    task: Task
    seed: int
    network: Network
    injector: Injector
    schedule: Schedule
    make_server: tuple[MakeServer, MakeServer] = (Server, Server)
    horizon: float = HORIZON
    processes: dict[str, Process] = field(default_factory=dict)
    disks: defaultdict[str, Disk] = field(default_factory=lambda: defaultdict(Disk))
    servers: list[Server] = field(default_factory=list)
    transcript: list[tuple[float, Note]] = field(default_factory=list)
    happenings: list[tuple[float, str, ServerEvent]] = field(default_factory=list)
    story: list[Entry] = field(default_factory=list)
    settled: tuple[dict[int, RoundReport], dict[int, RoundReport]] = field(default_factory=lambda: ({}, {}))
    models: tuple[dict[int, Model], dict[int, Model]] = field(default_factory=lambda: ({}, {}))
    ended: list[Ended] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._wires = Wires(self.injector)
        self._changed = RecurringEvent()
        self._over = False
        self._reachable: set[int] = set()

    # ---- what a test does with it

    def start(self, name: str, behaviour: Behaviour, make: MakeClient = Client, *, judged: bool = False) -> None:
        """Start a client's process; each time it is killed it begins anew, with what its disk kept.

        Args:
            name: the client's.
            behaviour: what it does in each of its lives, once it is connected.
            make: makes the client from what it is made of.
            judged: a `MisuseError` of the behaviour's does not end the world, but is kept in `ended` for a check to
                judge, since a malicious server may be behind it.
        """
        live = partial(self._live_as_client, name, behaviour, make, judged)
        self._nursery.start_soon(self._keep, self.process(name), live)

    async def wait_listening(self) -> None:
        """Wait until both servers have been reachable; clients that are started then connect at once."""
        while len(self._reachable) < len(SERVERS):
            await self._changed.wait()

    async def wait_settled(self, number: int) -> None:
        """Wait until both servers have settled a round."""
        while not all(number in settled for settled in self.settled):
            await self._changed.wait()

    def process(self, name: str) -> Process:
        """A party's process, over all its lives."""
        if name not in self.processes:
            self.processes[name] = Process(name, Random(f"{self.seed}/{name}"))
        return self.processes[name]

    def end(self) -> None:
        """What still happens while its processes are stopped is no part of its story."""
        self._over = True

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.injector.now

    # ---- processes

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep both servers running until cancelled."""
        self.injector.begin()
        self.injector.kill, self.injector.give_up = self._crash, self._give_up
        self.injector.tell = lambda fault: self._tell(party_of(fault), fault)
        self.servers = list(self.network.servers)
        with listening(self._heard):
            async with trio.open_nursery() as self._nursery:
                for index, name in enumerate(SERVERS):
                    self.models[index][0] = dict(self.servers[index].model)
                    self._nursery.start_soon(self._keep, self.process(name), partial(self._live_as_server, index))
                for fault in self.injector.timed:
                    self._nursery.start_soon(self._strike, fault)
                self._nursery.start_soon(self._watch_horizon)
                task_status.started()

    async def _watch_horizon(self) -> None:
        """Virtual time costs nothing, so whoever waits for what never comes would do so for ever."""
        await trio.sleep(self.horizon)
        from parties.testing.chart.chart import Chart  # which knows worlds

        states = ", ".join(f"{name}: {server.state_name()}" for name, server in zip(SERVERS, self.servers, strict=True))
        late = f", or after {self.schedule.seconds:g} s" if self.schedule.seconds < float("inf") else ""
        raise HorizonError(
            f"the world is {self.horizon:g} s old, and the test still waits ({states}). A round closes with "
            f"{self.schedule.clients} submissions{late}: is that the schedule= you want? A test that "
            f"takes longer says so with horizon=. The end of what happened:\n{Chart.of(self).last(ROWS)}"
        )

    async def _keep(self, process: Process, live: Live) -> None:
        """Live again and again, until a life ends by itself."""
        while process.down != float("inf"):
            process.down = PAUSE
            if await self._live_once(process.begin(), live):
                return
            await trio.sleep(process.down)

    async def _live_once(self, life: Life, live: Live) -> bool:
        """One life; whether its process is over for good. What a killed process still does while it ends is nothing."""
        self._tell(life.process.name, Began(life.number))
        life.ending.append(partial(self._died, life.process))
        try:
            with life.scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_enter, life, live)
                self._tell(life.process.name, Left())
                return True
        except BaseException as error:
            if life.alive:
                return self._ended(life, error)
        await trio.lowlevel.checkpoint_if_cancelled()
        return False

    def _ended(self, life: Life, error: BaseException) -> bool:
        """A process ended with an error; whether for good. A bug, or a mistake of a behaviour's, ends the world."""
        life.alive = False
        reasons = leaves(error)
        if life.mistaken or not all(isinstance(reason, FslError) for reason in reasons):
            raise error
        self._tell(life.process.name, Failed(reasons[0]))
        if all(isinstance(reason, PASSING) or _is_limit(reason) for reason in reasons):
            return False
        self.ended.append(Ended(life.process.name, self.now, reasons[0]))
        return True

    async def _live_as_server(self, index: int, life: Life) -> None:
        name = SERVERS[index]
        self._wires.listens(life)
        store = await DiskStore(self.disks[name], life, self.injector).read()
        setup = replace(
            self.network.servers[index].setup,
            transport=self._wires,
            store=store,
            schedule=self.schedule,
            observe=partial(self._observe, life, index),
            watch=partial(self._watch, life),
            clock=partial(self._wall_clock, name),
        )
        server = self.servers[index] = self.make_server[index](setup)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            self._reachable.add(index)
            self._changed.set()
            past = await server.past_rounds(most=ALL_ROUNDS)
            status = server.status()
            self._note_model(index, status.rounds_done + status.rounds_aborted)
            for over in past:
                self._note_settled(index, over.report)

    async def _live_as_client(
        self, name: str, behaviour: Behaviour, make: MakeClient, judged: bool, life: Life
    ) -> None:
        store = await DiskStore(self.disks[name], life, self.injector).read()
        setup = replace(
            self.network.client(name).setup, transport=self._wires, store=store, watch=partial(self._watch, life)
        )
        async with make(setup) as client:
            try:
                await behaviour(client)
            except BaseException as error:
                life.mistaken = not judged and any(isinstance(leaf, MisuseError) for leaf in leaves(error))
                raise

    def _crash(self, crash: Crash) -> None:
        self.process(crash.party).kill(crash.down)

    def _died(self, process: Process) -> None:
        self._tell(process.name, Killed(process.down))
        self.disks[process.name].crash(process.rng)

    async def _strike(self, fault: Crash | GiveUp) -> None:
        """Wait until a fault is due that has a time."""
        match fault:
            case Crash(place=AtTime(seconds=seconds)):
                await trio.sleep(self.injector.until(seconds))
                if self.process(fault.party).running:
                    self.injector.strike(fault)
                    self._crash(fault)
            case GiveUp(place=AtTime(seconds=seconds)):
                await trio.sleep(self.injector.until(seconds))
                self._give_up(fault)

    def _give_up(self, fault: GiveUp) -> None:
        server = self.servers[SERVERS.index(fault.party)]
        run = server.running
        if run is not None:
            self.injector.strike(fault)
            self._nursery.start_soon(
                server.actor.post_event, run.round_id, round_protocol.GaveUp("the operator said so")
            )

    # ---- what is seen

    def _tell(self, party: str, told: Told) -> None:
        if not self._over:
            self.story.append(Entry(self.now, party, told))

    def _heard(self, step: Step) -> None:
        self.injector.hear(step)
        self.steps.append(step)

    def _watch(self, life: Life, sender: str, receiver: str, message: Message, bulk: int) -> None:
        if life.alive:
            self.injector.watch(sender, receiver, message)
            note = Note(sender, receiver, message, bulk)
            self.transcript.append((self.now, note))
            self._tell(sender, note)

    def _observe(self, life: Life, index: int, happening: ServerEvent) -> None:
        if not life.alive:
            return
        self.happenings.append((self.now, SERVERS[index], happening))
        self._tell(SERVERS[index], happening)
        if isinstance(happening, RoundSettled):
            report = happening.past.report
            self._note_model(index, report.number)
            self._note_settled(index, report)

    def _note_settled(self, index: int, report: RoundReport) -> None:
        before = self.settled[index].setdefault(report.number, report)
        if before != report:
            self.contradictions.append(f"{SERVERS[index]} tells of round {report.number}: {before}, and later {report}")
        self._changed.set()

    def _note_model(self, index: int, number: int) -> None:
        model = dict(self.servers[index].model)
        before = self.models[index].setdefault(number, model)
        if any(not np.array_equal(before[name], array) for name, array in model.items()):
            self.contradictions.append(f"{SERVERS[index]} had another model after round {number} before it was killed")

    def _wall_clock(self, name: str) -> float:
        return EPOCH + self.now + self.injector.clock_error(name)


async def _enter(life: Life, live: Live) -> None:
    life.enter()
    await live(life)


def _is_limit(error: BaseException) -> bool:
    """Whether a server has had enough of a client for one round."""
    return isinstance(error, RequestDeniedError) and error.reason == "limit"


def _refuse_unknown(faults: Sequence[Fault], clients: Sequence[str]) -> None:
    """A fault of a party that never comes would never strike, and its test prove nothing."""
    known = (*SERVERS, *clients)
    for fault in faults:
        for party in parties_of(fault):
            if party not in known:
                raise MisuseError(
                    f"{fault}: there is no party {party!r}, only {', '.join(known)}; name the clients that faults "
                    "strike in clients=[…]"
                )


@asynccontextmanager
async def world(
    task: Task,
    model: Mapping[str, npt.ArrayLike],
    seed: int,
    faults: Sequence[Fault] = (),
    schedule: Schedule | None = None,
    make_server: tuple[MakeServer, MakeServer] = (Server, Server),
    *,
    clients: Sequence[str] = (),
    horizon: float = HORIZON,
) -> AsyncIterator[World]:
    """Run S0 and S1 in a simulated world; needs a clock that jumps (`trio.testing.MockClock`).

    Args:
        task: what is learnt.
        model: by block, what both servers start from.
        seed: of everything that happens by chance.
        faults: what goes wrong.
        schedule: when rounds close; by default once every client that the task allows is in.
        make_server: makes S0 and S1 from what they are made of.
        clients: the names of those whom faults may strike.
        horizon: seconds of its own time after which the world ends with an error.

    Raises:
        MisuseError: the model does not fit the task, the clock does not jump, or a fault strikes a party that there is
            not.
        HorizonError: the world has come to its horizon.
    """
    clock = trio.lowlevel.current_clock()
    if not isinstance(clock, MockClock) or clock.autojump_threshold == float("inf"):
        raise MisuseError(
            "a simulated world needs a clock that jumps: in a test, ask for the fixture `autojump_clock`; "
            "elsewhere, trio.run(..., clock=trio.testing.MockClock(autojump_threshold=0))"
        )
    _refuse_unknown(faults, clients)
    made = World(
        task,
        seed,
        Network(task, model, seed, InlineLane()),
        Injector(seed, faults),
        schedule or Schedule(clients=task.max_clients),
        make_server,
        horizon,
    )
    with seeded_scheduling(seed), sole_error():
        async with trio.open_nursery() as nursery:
            await nursery.start(made.run)
            try:
                yield made
            finally:
                made.end()
                nursery.cancel_scope.cancel()
