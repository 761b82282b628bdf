"""A world of simulated parties: two servers that are kept running, and clients, each a process with its own disk.

The parties run the deployed code, down to handshakes and records. Only their surroundings differ: time is virtual, the
network and the disks are simulated, and a plan of faults says what goes wrong. All random choices follow from the seed:
one seed, one transcript.
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
from fsl_async.errors import FslError, MisuseError
from fsl_async.protocols import ssa
from fsl_async.task import Task
from fsl_async.wire.messages import Message
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import InlineLane
from parties.concurrency import RecurringEvent
from parties.events import RoundSettled, ServerEvent
from parties.outcome import Model, RoundReport
from parties.server.limits import Schedule
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import SERVERS, Network, Note
from parties.simulation.scheduling import seeded_scheduling
from parties.testing.disk import Disk, DiskStore
from parties.testing.faults import AbortRound, AtTime, Crash, Fault, parties_of, party_of
from parties.testing.injector import Injector
from parties.testing.processes import Life, Process
from parties.testing.recorder import Step, listening
from parties.testing.story import Entry, StoryEvent
from parties.testing.supervisor import Ended, Supervisor
from parties.testing.wires import Wires

__all__ = ["Ended", "HorizonError", "World", "world"]

EPOCH = 1.7e9
"""The wall clocks' time when a world begins, in seconds since 1970."""

HORIZON = 3_600.0
"""Virtual seconds after which a world that has not ended raises `HorizonError`."""

ROWS = 40
"""How many rows of the chart a `HorizonError` shows."""

ALL_ROUNDS = 10**6

Behaviour: TypeAlias = Callable[[Client], Awaitable[None]]
"""What a client does in one life; when it returns, the client is not started again."""

MakeServer: TypeAlias = Callable[[ServerSetup], Server]
MakeClient: TypeAlias = Callable[[ClientSetup], Client]


class HorizonError(FslError):
    """A world has reached its horizon before the test ended; the message shows the end of the chart."""


@dataclass(eq=False)
class World:
    """Simulated parties under a plan of faults; made by `world`.

    Attributes:
        task: the task.
        seed: the seed of all random choices.
        network: makes the parties.
        injector: injects the faults.
        processes: by party, its process.
        disks: by party, its disk.
        servers: S0 and S1, each in its present life.
        transcript: every message that a party sent, in order, with the time.
        events: every event that a server reported, in order, with the time and the server's name.
        story: messages and events, with faults and the lives of processes, in order; see `parties.testing.chart`.
        settled: by server and number, the report of a round.
        models: by server and number, the model after a round; 0 is the initial model.
        ended: processes that ended with an error and were not started again.
        steps: every step of every machine, in order.
        contradictions: what a restarted server says differently than before.
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
    events: list[tuple[float, str, ServerEvent]] = field(default_factory=list)
    story: list[Entry] = field(default_factory=list)
    settled: tuple[dict[int, RoundReport], dict[int, RoundReport]] = field(default_factory=lambda: ({}, {}))
    models: tuple[dict[int, Model], dict[int, Model]] = field(default_factory=lambda: ({}, {}))
    ended: list[Ended] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    contradictions: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._wires = Wires(self.injector)
        self._supervisor = Supervisor(self._tell, self._died, self._ended)
        self._changed = RecurringEvent()
        self._over = False
        self._reachable: set[int] = set()

    # ---- for tests

    def start(self, name: str, behaviour: Behaviour, make: MakeClient = Client, *, judged: bool = False) -> None:
        """Start a client's process; each time it is killed it starts again, with the contents of its disk.

        Args:
            name: the client's name.
            behaviour: what it does in each of its lives, once it is connected.
            make: makes the client from its setup.
            judged: if True, a `MisuseError` of the behaviour does not end the world, but is stored in `ended` for a
                check to judge, because a malicious server may have caused it.
        """
        live = partial(self._live_as_client, name, behaviour, make, judged)
        self._nursery.start_soon(self._supervisor.keep, self.process(name), live)

    async def wait_listening(self) -> None:
        """Wait until both servers have been reachable; clients that are started after this connect at once."""
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
        """End the story: what happens while the processes are stopped is not part of it."""
        self._over = True

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.injector.now

    # ---- processes

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep both servers running until cancelled."""
        self.injector.begin()
        self.injector.kill, self.injector.abort = self._crash, self._abort
        self.injector.tell = lambda fault: self._tell(party_of(fault), fault)
        self.servers = list(self.network.servers)
        with listening(self._heard):
            async with trio.open_nursery() as self._nursery:
                for index, name in enumerate(SERVERS):
                    self.models[index][0] = dict(self.servers[index].model)
                    live = partial(self._live_as_server, index)
                    self._nursery.start_soon(self._supervisor.keep, self.process(name), live)
                for fault in self.injector.timed:
                    self._nursery.start_soon(self._strike, fault)
                self._nursery.start_soon(self._watch_horizon)
                task_status.started()

    async def _watch_horizon(self) -> None:
        """End a world in which a test waits in vain, because virtual time would never run out."""
        await trio.sleep(self.horizon)
        from parties.testing.chart import Chart  # imported here because charts import worlds

        states = ", ".join(f"{name}: {server.state_name()}" for name, server in zip(SERVERS, self.servers, strict=True))
        late = f", or after {self.schedule.seconds:g} s" if self.schedule.seconds < float("inf") else ""
        raise HorizonError(
            f"the world is {self.horizon:g} s old, and the test still waits ({states}). A round closes with "
            f"{self.schedule.clients} submissions{late}: is that the schedule= you want? A test that "
            f"takes longer says so with horizon=. The end of what happened:\n{Chart.of(self).last(ROWS)}"
        )

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
        self.disks[process.name].crash(process.rng)

    def _ended(self, process: Process, error: BaseException) -> None:
        self.ended.append(Ended(process.name, self.now, error))

    async def _strike(self, fault: Crash | AbortRound) -> None:
        """Wait for the time of a fault, and let it strike."""
        match fault:
            case Crash(point=AtTime(seconds=seconds)):
                await trio.sleep(self.injector.until(seconds))
                if self.process(fault.party).running:
                    self.injector.strike(fault)
                    self._crash(fault)
            case AbortRound(point=AtTime(seconds=seconds)):
                await trio.sleep(self.injector.until(seconds))
                self._abort(fault)

    def _abort(self, fault: AbortRound) -> None:
        server = self.servers[SERVERS.index(fault.party)]
        run = server.running
        if run is not None:
            self.injector.strike(fault)
            self._nursery.start_soon(server.actor.post_event, run.round_id, ssa.GaveUp("the operator said so"))

    # ---- records

    def _tell(self, party: str, told: StoryEvent) -> None:
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

    def _observe(self, life: Life, index: int, event: ServerEvent) -> None:
        if not life.alive:
            return
        self.events.append((self.now, SERVERS[index], event))
        self._tell(SERVERS[index], event)
        if isinstance(event, RoundSettled):
            report = event.past.report
            self._note_model(index, report.number)
            self._note_settled(index, report)

    def _note_settled(self, index: int, report: RoundReport) -> None:
        before = self.settled[index].setdefault(report.number, report)
        if before != report:
            self.contradictions.append(
                f"{SERVERS[index]} reports round {report.number} as {before}, and later as {report}"
            )
        self._changed.set()

    def _note_model(self, index: int, number: int) -> None:
        model = dict(self.servers[index].model)
        before = self.models[index].setdefault(number, model)
        if any(not np.array_equal(before[name], array) for name, array in model.items()):
            self.contradictions.append(f"{SERVERS[index]} had another model after round {number} before it was killed")

    def _wall_clock(self, name: str) -> float:
        return EPOCH + self.now + self.injector.clock_error(name)


def _refuse_unknown(faults: Sequence[Fault], clients: Sequence[str]) -> None:
    """Refuse faults of unknown parties, because they would never strike, and their test would prove nothing."""
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
    """Run S0 and S1 in a simulated world, on a clock that jumps (`trio.testing.MockClock`).

    Example:
        >>> async with world(task, model, seed=7, faults=[Crash("S0", AtTime(2.0), down=5.0)]) as made:
        ...     made.start("anna", take_part)
        ...     await made.wait_settled(1)

    Args:
        task: the task.
        model: by block, the initial model of both servers.
        seed: the seed of all random choices.
        faults: what goes wrong.
        schedule: when rounds close; by default when as many clients as the task allows have submitted.
        make_server: makes S0 and S1 from their setups.
        clients: the names of the clients that faults may strike.
        horizon: virtual seconds after which the world ends with an error.

    Raises:
        MisuseError: the model does not fit the task, the clock does not jump, or a fault names an unknown party.
        HorizonError: the world has reached its horizon.
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
