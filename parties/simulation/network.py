"""All parties in one process: two servers and any number of clients over the in-memory transport.

The parties are the deployed ones, handshakes and records included. Only three things differ: randomness comes from the
seed, computation runs inline, and the transport is in memory. So equal seeds give equal transcripts, and no simulated
party can talk to one that is not simulated.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import trio
from trio.testing import wait_all_tasks_blocked

from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.errors import MisuseError, PeerViolationError, sole_error
from fsl_async.randomness import SeededSource
from fsl_async.server_rules import OwnRule
from fsl_async.task import Task
from fsl_async.wire.codec import Message
from parties.client.client import Client
from parties.client.setup import ClientSetup, never
from parties.compute import ComputeLane, InlineLane
from parties.events import ClientLeft, ClientMet, ServerEvent
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.outcome import Model, RoundOutcome
from parties.schedule import NEVER, ConversationLimits, Schedule
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.scheduling import seeded_scheduling
from parties.storage.store import MemoryStore
from parties.watch import Note
from transport import Kind, MemoryNetwork
from transport.channel import REMINDER
from transport.needs_trio import NeedsTrio, trio_context

_log = logging.getLogger("parties.simulation")

SERVERS = ("S0", "S1")
FOR_EVER = float("inf")
PATIENCE = 3600.0
"""Seconds for which a client goes on trying: nothing gets lost here, and a busy machine is no reason to give up."""

SHORTLY = 0.01
"""Seconds after which to look again whether threads have done their work."""

QUIET = 1.0
"""Seconds in which no other client asks, after which to draw of those that have, while others may still come."""

AFTER_ALL = 0.001
"""Seconds for which nothing must move before a wait is given up, so that a call which waits for that itself goes on."""

OUTSIDE = 1.0
"""Seconds after which to look again whether a wait has an end, while a thread or the network may still end it."""


class _Member(Client):
    """A client of a simulation, of which one with its name runs at a time, as one process with a state file does."""

    def __init__(self, running: dict[str, Client], setup: ClientSetup) -> None:
        super().__init__(setup)
        self._connected = running

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """See `Client.run`.

        Raises:
            MisuseError: another client of this name is running.
        """
        if self._connected.get(self.name, self) is not self:
            raise MisuseError(
                f"client {self.name!r} is connected already, and is one client however often it is made, with one "
                "submission in a round: use the one that is connected, close it first, or take another name"
            )
        begins = self.name not in self._connected
        self._connected[self.name] = self
        try:
            await super().run(task_status=task_status)
        finally:
            if begins:
                del self._connected[self.name]


class Network:
    """A running simulation.

    Attributes:
        task: what is learnt.
        transcript: every message so far, in order.
        servers: S0 and S1.

    `others` tells whether somebody outside this loop, such as another thread, may still call; `state` and `apply` are
    those of `ServerSetup`.
    """

    def __init__(
        self,
        task: Task,
        model: Mapping[str, npt.ArrayLike],
        seed: int,
        lane: ComputeLane,
        others: Callable[[], bool] = lambda: False,
        *,
        state: Model | None = None,
        apply: OwnRule | None = None,
    ) -> None:
        self.task = task
        self.transcript: list[Note] = []
        self._seed = seed
        self._lane = lane
        self._others = others
        self._rule: dict[str, Any] = {"state": state or {}, "apply": apply}
        self._memory = MemoryNetwork(steady=True)
        self._registry = Registry()
        self._identities = tuple(Identity.generate(name, SeededSource(seed, name, "keys")) for name in SERVERS)
        self._known: dict[str, Identity] = {}
        self._running: dict[str, Client] = {}
        self._numbers = itertools.count()
        self._connections: Counter[str] = Counter()
        self._watching = trio.Lock()
        arrays = {name: np.array(array) for name, array in model.items()}
        self.servers = tuple(Server(self._server_setup(index, arrays)) for index in (0, 1))

    @property
    def model(self) -> dict[str, npt.NDArray[Any]]:
        """The model as the servers hold it now."""
        return dict(self.servers[0].model)

    @property
    def rule_state(self) -> Model:
        """What the task's optimizer or own rule keeps beside the model; empty where that is nothing."""
        return self.servers[0].rule_state

    def client(self, name: str) -> Client:
        """A client of that name, registered with both servers; enter it as a context manager to connect."""
        if name not in self._known:
            self._known[name] = Identity.generate(name, SeededSource(self._seed, name, "keys"))
            self._registry.add(self._known[name].public)
        first, second = (identity.public for identity in self._identities)
        return _Member(
            self._running,
            ClientSetup(
                task=self.task,
                identity=self._known[name],
                servers=(first, second),
                addresses=("S0", "S1"),
                transport=self._memory,
                lane=self._lane,
                randomness=SeededSource(self._seed, name, str(next(self._numbers))),
                kind=Kind.SIMULATION,
                watch=self._watch,
                patience=PATIENCE,
                stuck=self._stuck if isinstance(self._lane, InlineLane) else never,
            ),
        )

    async def draw(self) -> int:
        """In a task with a sample: let everybody ask who is about to, draw of them, and return the round's number.

        Calls of clients that ask wait for it, so they run in other tasks (see `examples/drawn_clients.py`), or in other
        threads. It waits for all that may ask: tasks that do not sleep, threads, and, in a program that is not on trio,
        whoever may call. Of the last it waits for no more once enough have asked and for a second nobody else has.

        Raises:
            MisuseError: the task has no sample, a round is open, or too few have asked; they still wait.
        """
        await self._until(self._gathered(), lambda: "more clients to ask for the next round")
        for server in self.servers:
            server.check_drawable()
        for server in self.servers:
            server.draw()
        runs = [await server.next_round(0) for server in self.servers]
        return runs[0].config.number

    async def finish_round(self) -> RoundOutcome:
        """Close the open round and return its sum.

        In a task with a sample: draw, if no round is open yet, and wait for those that were drawn. Who was drawn is
        waited for until it has submitted or disconnected, for as long as anybody is there who may act.

        Raises:
            FslError: the round was aborted; the message says why, and the next round opens.
        """
        if self.task.draws:
            if self.servers[0].running is None:
                await self.draw()
            await self._until(lambda: not self._missing(), self._whom_it_waits_for)
        first, second = self.servers
        runs = [await server.next_round(0) for server in self.servers]
        outcome = await first.close_round()
        other = await second.settled_outcome(runs[1])
        if outcome.clients != other.clients:
            raise PeerViolationError("S0 and S1", f"counted {outcome.clients} and {other.clients}")
        return outcome

    async def finish_union(self) -> dict[str, npt.NDArray[np.uint32]]:
        """Close the open union round and return, by sparse block, the union it found.

        Raises:
            FslError: the round was aborted; the message says why.
        """
        return dict((await self.finish_round()).union)

    def transcript_digest(self) -> str:
        """A digest of every message so far: equal for equal seeds and equal calls."""
        lines = (repr(note).encode() for note in self.transcript)
        return digest(Domain.SIMULATION, *lines)[:DIGEST_BYTES].hex()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run both servers until cancelled."""
        async with trio.open_nursery() as nursery:
            for server in self.servers:
                await nursery.start(server.run)
            task_status.started()

    def _server_setup(self, index: int, model: dict[str, npt.NDArray[Any]]) -> ServerSetup:
        name = SERVERS[index]
        return ServerSetup(
            task=self.task,
            index=index,
            identity=self._identities[index],
            peer=self._identities[1 - index].public,
            peer_address=SERVERS[1 - index],
            registry=self._registry,
            model=model,
            address=name,
            transport=self._memory,
            store=MemoryStore(),
            lane=self._lane,
            randomness=SeededSource(self._seed, name),
            kind=Kind.SIMULATION,
            conversations=ConversationLimits(idle_seconds=FOR_EVER, queue_seconds=FOR_EVER),  # however slow it is here
            schedule=Schedule(clients=NEVER),  # closed by `finish_round` alone
            watch=self._watch,
            observe=self._note_connection,
            clock=trio.current_time,
            **self._rule,
        )

    async def _until(self, reached: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait until something is reached, or no task is left that could reach it: all of them sleep.

        Args:
            reached: tells whether it is.
            what: what is waited for, for people.
        """
        remind, looks = self._reminder(what), 2
        await wait_all_tasks_blocked()
        while not reached() and looks:
            if self._somebody_may_act():
                looks = 2
                remind()
                await trio.sleep(SHORTLY)
            else:
                looks -= 1  # a call may have come since all was quiet: it takes its steps before the second look
            await wait_all_tasks_blocked()

    def _gathered(self) -> Callable[[], bool]:
        """What tells whether enough have asked, and for a while nobody else has; threads of trio's are waited for."""
        before: list[frozenset[str]] = []
        since = 0.0

        def gathered() -> bool:
            nonlocal before, since
            asked, now = [server.asked_clients() for server in self.servers], trio.current_time()
            if asked != before:
                before, since = asked, now
            enough = all(server.has_enough_asked() for server in self.servers)
            return enough and now - since >= QUIET and not _outside_world()

        return gathered

    def _missing(self) -> list[str]:
        """Who is connected, was drawn for the round that is open, and has not submitted to both servers."""
        missing = {
            name
            for server in self.servers
            if (run := server.running) is not None
            for name in (run.start.drawn or frozenset()) - server.submitted_clients()
            if run.driver.admits(name)
        }
        return sorted(name for name in missing if self._connections[name])

    def _whom_it_waits_for(self) -> str:
        return f"clients that were drawn and are to submit, or to be closed: {', '.join(self._missing())}"

    async def _stuck(self) -> str:
        """Wait until no task of this process can continue by itself: then a task that waits for a round waits in vain.

        One task watches at a time, because a task that sleeps is not stuck.
        """
        drawn = "drawn by `net.draw()` and " if self.task.draws else ""
        ends = f"a simulated round is {drawn}closed by `net.finish_round()`"
        remind = self._reminder(lambda: f"another task or thread to go on; {ends}")
        quiet = 0.0  # at first, for these seconds are real ones
        async with self._watching:
            while True:
                await wait_all_tasks_blocked(quiet)
                next_deadline = trio.lowlevel.current_statistics().seconds_to_next_deadline
                if next_deadline < float("inf"):
                    quiet = 0.0
                    await trio.sleep(max(0.0, next_deadline))  # which may have passed by now
                elif self._somebody_may_act():
                    quiet = 0.0
                    remind()
                    await trio.sleep(OUTSIDE)
                elif not quiet:
                    quiet = AFTER_ALL
                else:
                    return f"no other task is left that could end this wait; {ends}: call it first, or in another task"

    def _somebody_may_act(self) -> bool:
        """Whether something outside this loop may still change anything, or call."""
        return _outside_world() or self._others()

    def _reminder(self, what: Callable[[], str]) -> Callable[[], None]:
        """What says once, after a while, what is waited for."""
        due = trio.current_time() + REMINDER

        def remind() -> None:
            nonlocal due
            if trio.current_time() >= due:
                due = float("inf")
                _log.warning("the simulation has waited for %.0f s for %s", REMINDER, what())

        return remind

    def _note_connection(self, event: ServerEvent) -> None:
        match event:
            case ClientMet(client=client):
                self._connections[client] += 1
            case ClientLeft(client=client):
                self._connections[client] -= 1
            case _:
                pass

    def _watch(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        self.transcript.append(Note(sender, receiver, message, bulk))


@asynccontextmanager
async def running(network: Network, seed: int) -> AsyncIterator[Network]:
    """Run a network, in an order that the seed decides."""
    with seeded_scheduling(seed), sole_error():
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            try:
                yield network
            finally:
                nursery.cancel_scope.cancel()


@trio_context(
    NeedsTrio(
        "parties.simulate",
        asyncio="use `async with parties.aio.simulate(...)`, or `with parties.simulate_blocking(...)`",
        blocking="use `with parties.simulate_blocking(...)`, or start trio with `trio.run(main)`",
    )
)
async def simulate(
    task: Task, model: Mapping[str, npt.ArrayLike], seed: int, lane: ComputeLane | None = None
) -> AsyncIterator[Network]:
    """Run S0 and S1 in memory, and make clients on demand.

        async with simulate(task, {"items": np.zeros((10_000, 8))}, seed=7) as net:
            async with net.client("alice") as alice:
                rows = await alice.retrieve({"items": [3, 14]})
                await alice.submit({"items": ([3, 14], rows["items"] + 1)})
            outcome = await net.finish_round()      # a `RoundOutcome`

    Args:
        task: what is learnt.
        model: by block, what both servers start from; empty where the task only finds unions.
        seed: decides all randomness and all scheduling.
        lane: where to compute; inline unless told otherwise (threads make a run faster and no longer reproducible).

    Raises:
        MisuseError: the model does not fit the task, or no trio task runs here.
    """
    async with running(Network(task, model, seed, lane or InlineLane()), seed) as network:
        yield network


def _outside_world() -> bool:
    """Whether a thread or the network may still wake a task; trio itself listens at one socket."""
    threads = trio.to_thread.current_default_thread_limiter().borrowed_tokens
    waiting: Any = trio.lowlevel.current_statistics().io_statistics
    return threads > 0 or getattr(waiting, "tasks_waiting_read", 1) + getattr(waiting, "tasks_waiting_write", 0) > 1
