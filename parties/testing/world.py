"""A world of simulated parties: two servers that are kept running, and clients, each a process with its own disk.

The parties run the deployed code, down to handshakes and records. Only their surroundings differ: time is virtual, the
network and the disks are simulated, and a plan of faults says what goes wrong. All random choices follow from the seed:
one seed, one transcript.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import trio
from nacl.public import PrivateKey

from fsl_async.errors import MisuseError, leaves
from fsl_async.protocols import ssa
from fsl_async.randomness import SeededSource
from fsl_async.server.rules import describe_state
from fsl_async.task import Task
from fsl_async.wire.codec import Message
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.cluster.engine import ClusterEngine
from parties.cluster.partial_sum import Pace
from parties.cluster.worker_service import WorkerService, WorkerSetup
from parties.compute import InlineLane
from parties.docstrings import documented_by
from parties.errors import RequestDeniedError, ServerBusyError
from parties.events import RoundSettled, ServerEvent
from parties.outcome import Model, RoundReport
from parties.schedule import Schedule
from parties.server.round.engine import Engine
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import SERVERS, Network
from parties.testing.faults import CALM, AtTime, AtTransition, SpoiltBlobs
from parties.testing.machines import MACHINES
from parties.testing.played_cluster import PlayedCluster
from parties.testing.processes import Life, is_of_surroundings
from parties.testing.recorder import Transition
from parties.testing.round_faults import AbortRound, CloseNow, Fault, StoppedWorker, Stragglers
from parties.testing.round_legend import RoundLegend
from parties.testing.surroundings import HORIZON, Surroundings, entered, refuse_unknown
from parties.testing.wires import Connection
from parties.watch import Note

ALL_ROUNDS = 10**6

ResultT = TypeVar("ResultT")

Behaviour: TypeAlias = Callable[[Client], Awaitable[None]]
"""What a client does in one life; when it returns, the client is not started again."""

RELEASE = "played"
PACE = Pace(task_seconds=1.0, patience=20.0, seal=2)

MakeServer: TypeAlias = Callable[[ServerSetup], Server]
MakeClient: TypeAlias = Callable[[ClientSetup], Client]


@documented_by(Surroundings)
class World(Surroundings):
    """Simulated servers and clients under a plan of faults; made by `world`.

    Attributes:
        task: the task.
        network: makes the parties.
        schedule: when rounds close.
        workers: how many workers compute for each server, which are processes of their own, called S0.worker-1 and so
            on; with none it does so itself.
        clusters: each server's workers.
        servers: S0 and S1, each in its present life.
        events: every event that a server reported, in order, with the time and the server's name.
        settled: by server and number, the report of a round.
        models: by server and number, the model after a round; 0 is the initial model.
        states: by server and number, what the task's optimizer or own rule keeps after a round.
        contradictions: what a restarted server says differently than before.

    And those of all simulated processes: `seed`, `injector`, `processes`, `disks`, `transcript`, `story`, `ended`,
    `steps`; see `parties.testing.surroundings`.
    """

    def __init__(
        self,
        task: Task,
        network: Network,
        seed: int,
        faults: Sequence[Fault],
        schedule: Schedule,
        make_server: tuple[MakeServer, MakeServer],
        horizon: float,
        workers: tuple[int, int] = (0, 0),
        worker_memory: int = 0,
        workers_answer: bool = False,
    ) -> None:
        super().__init__(seed, faults, MACHINES, horizon, RoundLegend(), _between_servers, _is_passing)
        self.task = task
        self.network = network
        self.schedule = schedule
        self.workers = workers
        self._worker_memory = worker_memory
        self._workers_answer = workers_answer
        self.clusters = tuple(PlayedCluster(f"{name}.cluster") for name in SERVERS)
        self.servers: list[Server] = []
        self.events: list[tuple[float, str, ServerEvent]] = []
        self.settled: tuple[dict[int, RoundReport], dict[int, RoundReport]] = ({}, {})
        self.models: tuple[dict[int, Model], dict[int, Model]] = ({}, {})
        self.states: tuple[dict[int, Model], dict[int, Model]] = ({}, {})
        self.contradictions: list[str] = []
        self._make_server = make_server
        self._reachable: set[int] = set()
        self._spoils_blobs = any(isinstance(fault, SpoiltBlobs) for fault in faults)
        self._operators = [fault for fault in faults if isinstance(fault, AbortRound | CloseNow)]
        self._stopped_workers = [fault for fault in faults if isinstance(fault, StoppedWorker)]
        self._stragglers = Stragglers(self.injector, faults)

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
        self.keep(name, partial(self._live_as_client, name, behaviour, make, judged))

    async def wait_listening(self) -> None:
        """Wait until both servers have been reachable; clients that are started after this connect at once."""
        await self.wait_until(lambda: len(self._reachable) == len(SERVERS))

    async def wait_settled(self, number: int) -> None:
        """Wait until both servers have settled a round."""
        await self.wait_until(lambda: all(number in settled for settled in self.settled))

    def waits(self) -> str:
        """See `Surroundings.waits`."""
        states = ", ".join(f"{name}: {server.state_name()}" for name, server in zip(SERVERS, self.servers, strict=True))
        late = f", or after {self.schedule.seconds:g} s" if self.schedule.seconds < float("inf") else ""
        return (
            f"the test still waits ({states}). A round closes with {self.schedule.clients} submissions{late}: is that "
            "the schedule= you want?"
        )

    # ---- processes

    def begin(self) -> None:
        """Keep both servers running, and let operators abort and close rounds when the plan says so."""
        self.injector.committed = self._committed
        self.servers = list(self.network.servers)
        for index, name in enumerate(SERVERS):
            self.models[index][0] = dict(self.servers[index].model)
            self.states[index][0] = dict(self.servers[index].rule_state)
            self.keep(name, partial(self._live_as_server, index))
            for worker in worker_names(index, self.workers[index]):
                self.keep(worker, partial(self._live_as_worker, index))
        for fault in self._operators:
            if isinstance(fault.point, AtTime):
                self._nursery.start_soon(self._operate_at, fault, fault.point.seconds)
        for stopped in self._stopped_workers:
            self._nursery.start_soon(self._stop_worker, stopped)

    async def _live_as_server(self, index: int, life: Life) -> None:
        name = SERVERS[index]
        self.wires.listens(life)
        given = self.network.servers[index].setup
        setup = replace(
            given,
            transport=self.wires,
            store=await self.open_disk(life),
            blobs=self.open_blobs(life),
            schedule=self.schedule,
            observe=partial(self._observe, life, index),
            watch=partial(self._watch, life),
            clock=partial(self.wall_clock, name),
            engine=self._engine_of(index, life),
            recent=0 if self._spoils_blobs else given.recent,
        )
        server = self.servers[index] = self._make_server[index](setup)
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            self._reachable.add(index)
            self._changed.set()
            past = await server.past_rounds(most=ALL_ROUNDS)
            status = server.status()
            self._note_model(index, status.rounds_done + status.rounds_aborted)
            for over in past:
                self._note_settled(index, over.report)

    def _engine_of(self, index: int, life: Life) -> Engine | None:
        """The workers of a server, if it has any."""
        if not self.workers[index]:
            return None
        source = SeededSource(self.seed, "workers of", life.process.name, str(life.number))
        lane = self.network.servers[index].setup.lane
        answering = self._workers_answer
        cluster, owner = self.clusters[index], SERVERS[index].encode()
        return ClusterEngine(cluster, owner, RELEASE, lane, source, PACE, answering=answering)

    async def _live_as_worker(self, index: int, life: Life) -> None:
        """A worker of a server's."""
        service = WorkerService(
            WorkerSetup(
                blobs=self.share_blobs(life, SERVERS[index]),
                owner=SERVERS[index].encode(),
                lane=self.network.servers[index].setup.lane,
                release=RELEASE,
                secret=PrivateKey(SeededSource(self.seed, life.process.name, str(life.number))(32)),
                memory=self._worker_memory,
                clock=trio.current_time,
            )
        )
        await self.clusters[index].live(service, life)

    async def _live_as_client(
        self, name: str, behaviour: Behaviour, make: MakeClient, judged: bool, life: Life
    ) -> None:
        store = await self.open_disk(life)
        setup = replace(
            self.network.client(name).setup, transport=self.wires, store=store, watch=partial(self._watch, life)
        )
        async with make(setup) as client:
            try:
                await behaviour(client)
            except BaseException as error:
                life.mistaken = not judged and any(isinstance(leaf, MisuseError) for leaf in leaves(error))
                raise

    # ---- faults of rounds

    def _committed(self, party: str, taken: Transition) -> None:
        for fault in self._operators:
            if (
                party == fault.party
                and isinstance(fault.point, AtTransition)
                and self.injector.is_at(party, fault.point, taken)
                and not self.injector.calm
            ):
                self._operate(fault)

    async def _operate_at(self, fault: AbortRound | CloseNow, seconds: float) -> None:
        await trio.sleep(self.injector.until(seconds))
        self._operate(fault)

    def _operate(self, fault: AbortRound | CloseNow) -> None:
        server = self.servers[SERVERS.index(fault.party)]
        run = server.running
        if run is None:
            return
        self.injector.strike(fault)
        if isinstance(fault, AbortRound):
            self._nursery.start_soon(server.inbox.post, run.round_id, ssa.GaveUp("the operator said so"))
        else:
            self._nursery.start_soon(_close, server, run.config.number)

    async def _stop_worker(self, fault: StoppedWorker) -> None:
        cluster = self.clusters[SERVERS.index(fault.party.partition(".")[0])]
        await trio.sleep(self.injector.until(fault.begin))
        if not self.injector.calm:
            self.injector.strike(fault)
            with cluster.stopping(fault.party):
                await trio.sleep(self.injector.until(min(fault.begin + fault.seconds, CALM)))

    # ---- records

    def _watch(self, life: Life, sender: str, receiver: str, message: Message, bulk: int) -> None:
        if life.alive:
            self._stragglers.watch(sender, receiver, message)
            note = Note(sender, receiver, message, bulk)
            self.note(sender, note)
            if sender in SERVERS:  # a server tells of what it has sent, a client of what it is about to send
                self.wires.written(note)
            else:
                self.wires.announce(note)

    def _observe(self, life: Life, index: int, event: ServerEvent) -> None:
        if not life.alive:
            return
        self.events.append((self.now, SERVERS[index], event))
        self.tell(SERVERS[index], event)
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
        state = dict(self.servers[index].rule_state)
        if describe_state(self.states[index].setdefault(number, state)) != describe_state(state):
            self.contradictions.append(f"{SERVERS[index]} had another state after round {number} before it was killed")


async def _close(server: Server, number: int) -> None:
    """Have a server's operator close a round; what is refused is left as it is."""
    with suppress(MisuseError):
        await server.close_now(number)


def worker_names(index: int, count: int) -> tuple[str, ...]:
    """The names of a server's workers, as processes."""
    return tuple(f"{SERVERS[index]}.worker-{number}" for number in range(1, count + 1))


def _between_servers(connection: Connection) -> bool:
    return connection.sender in SERVERS and connection.receiver in SERVERS


def _is_passing(error: BaseException) -> bool:
    """Whether a process is started again: the network or the disk failed, or a server had no place for it."""
    limited = isinstance(error, RequestDeniedError) and error.reason == "limit"
    return is_of_surroundings(error) or isinstance(error, ServerBusyError) or limited


class _Lane(InlineLane):
    """Computes inline, and takes virtual time for it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run`."""
        if self._seconds:
            await trio.sleep(self._seconds)
        return await super().run(work)


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
    computing: float = 0.0,
    workers: tuple[int, int] = (0, 0),
    worker_memory: int = 0,
    workers_answer: bool = False,
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
        computing: virtual seconds that each piece of a party's heavy computation takes.
        workers: how many workers compute for S0 and S1; a server without any computes itself.
        worker_memory: bytes that each of them may use; 0 for any number.
        workers_answer: whether they answer retrievals, too.

    Raises:
        MisuseError: the model does not fit the task, the clock does not jump, or a fault names an unknown party.
        HorizonError: the world has reached its horizon.
    """
    inner = (*worker_names(0, workers[0]), *worker_names(1, workers[1]))
    refuse_unknown(faults, (*SERVERS, *inner, *clients), "name the clients that faults strike in clients=[…]")
    network, schedule = Network(task, model, seed, _Lane(computing)), schedule or Schedule(clients=task.max_clients)
    async with entered(
        World(task, network, seed, faults, schedule, make_server, horizon, workers, worker_memory, workers_answer)
    ) as made:
        yield made
