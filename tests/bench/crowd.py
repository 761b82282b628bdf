"""A round of very many clients on two servers in this process, whose requests are handed to them without connections.

What is left is what the core of a server does for each client: it checks a request, stores it, enters it in the list,
signs a receipt, evaluates, and states the outcome. Clients are made by hand: a name and keys that nobody uses.

    crowd_round(100_000)            # a whole round: seconds, bytes of statements, whether its sum is exact
    submitted_seconds(100_000)      # what one more submission costs a round that has so many
    core_bytes(5_000)               # memory of one server for each client whose submission is in
"""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import trio
from trio.testing import MockClock

from fsl_async import Ring, Sparse, Task
from fsl_async.client.planting import MasterSeeds, plant
from fsl_async.client.upload import submission_bulk
from fsl_async.config import RoundConfig
from fsl_async.derivation import public_digest, tree_digest
from fsl_async.errors import FslError
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from fsl_async.randomness import SeededSource
from fsl_async.wire.messages import AskOutcome, Finished, Message, Receipt, Submit
from fsl_async.wire.public_part import Layout, Trees
from parties.commands.bench.workload import SEED
from parties.compute import InlineLane
from parties.identity.keys import PublicIdentity
from parties.outcome import RoundOutcome
from parties.server.replies import NOTHING, reserve_nothing
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import SERVERS, Network, running
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import Store

ROWS, SELECT = 16, 1

WARM = 200
"""Clients before memory is measured."""

SETTLED = 60.0
"""Seconds of the simulation after which nothing moves."""

Progress = Callable[[str, int], None]
"""Told what has been done for so many clients."""


@dataclass
class CrowdFigures:
    """What a round of very many clients took.

    Attributes:
        clients: how many there were.
        requests: seconds of the processor for all submissions on both servers, with their evaluation.
        settling: seconds from closing the round to its outcome on both servers.
        statements: seconds for all statements of one server.
        statement_bytes: bytes of all statements of one server.
        counted: how many are in the sum.
        exact: whether the sum is the sum of what was submitted.
    """

    clients: int
    requests: float = 0.0
    settling: float = 0.0
    statements: float = 0.0
    statement_bytes: int = 0
    counted: int = 0
    exact: bool = False
    marks: list[tuple[str, int, float]] = field(default_factory=list)


def task_of(clients: int) -> Task:
    """A task as small as one can be, for so many clients."""
    block = Sparse("block", rows=ROWS, select=SELECT)
    return Task(
        name="crowd", blocks=(block,), ring=Ring(64), security="semi-honest", min_clients=2, max_clients=clients
    )


def crowd_round(clients: int, together: int = 256) -> CrowdFigures:
    """Let so many clients submit, close the round, and ask for every client's outcome.

    Args:
        clients: how many.
        together: how many have a request under way at a time.

    Raises:
        FslError: a request was refused.
    """
    figures: CrowdFigures = trio.run(_crowd_round, clients, together, clock=MockClock(autojump_threshold=0))
    return figures


def _name(number: int) -> str:
    return f"client-{number:07}"


async def _crowd_round(clients: int, together: int) -> CrowdFigures:
    figures, total = CrowdFigures(clients), np.zeros((ROWS, 1), dtype=np.int64)
    async with _crowded(clients) as network:
        runs = [await server.next_round(0) for server in network.servers]
        config = runs[0].config
        begun = time.process_time()
        turn = trio.CapacityLimiter(together)

        async def one(number: int) -> None:
            async with turn:
                await _submit(network.servers, config, number, total)

        for start in range(0, clients, 1024):
            async with trio.open_nursery() as nursery:
                for number in range(start, min(clients, start + 1024)):
                    nursery.start_soon(one, number)
            figures.marks.append(("submitted", start, time.process_time() - begun))
        figures.requests = time.process_time() - begun
        begun = time.process_time()
        outcome: RoundOutcome = await network.finish_round()
        figures.settling = time.process_time() - begun
        figures.counted = len(outcome.clients)
        figures.exact = bool(np.array_equal(outcome.elements["block"], total))
        begun = time.process_time()
        for number in range(clients):
            figures.statement_bytes += await _asked(network.servers[0], config, _name(number))
        figures.statements = time.process_time() - begun
    return figures


def submitted_seconds(already: int, more: int = 2000) -> float:
    """Seconds of the processor for one submission more in the list of a round that has so many; nothing is evaluated.

    Args:
        already: how many are in.
        more: over how many the time is taken; each is recorded by itself.
    """
    seconds: float = trio.run(_submitted_seconds, already, more, clock=MockClock(autojump_threshold=0))
    return seconds


async def _submitted_seconds(already: int, more: int) -> float:
    async with _crowded(already + more + 1) as network:
        actor, run = network.servers[0].actor, await network.servers[0].next_round(0)
        run.driver.taken = _nothing  # type: ignore[method-assign]
        events = [ssa.Submitted(_name(number), number.to_bytes(32, "little")) for number in range(already + more)]
        for start in range(0, already, 1000):
            await run.enter(events[start : min(already, start + 1000)])
        begun = time.process_time()
        for event in events[already:]:
            await actor._take_own(run.round_id, event)
        return (time.process_time() - begun) / more


def _nothing(event: Event) -> None:
    """Instead of evaluating what is not there."""


def core_bytes(clients: int) -> float:
    """Bytes of memory that one server has for each of so many clients whose submissions are in, beside what is stored.

    The store is a file, so what is in it is not counted; nor are the bytes of public parts, of which a simulated server
    has one for each client, in memory.
    """
    found: float = trio.run(_core_bytes, clients, clock=MockClock(autojump_threshold=0.02))
    return found


async def _core_bytes(clients: int) -> float:
    total = np.zeros((ROWS, 1), dtype=np.int64)
    with TemporaryDirectory() as folder:
        files = [await SqliteStore.open(Path(folder, f"{server}.db")) for server in SERVERS]
        async with aclosing(files[0]), aclosing(files[1]), _crowded(clients + WARM, files) as network:
            config = (await network.servers[0].next_round(0)).config
            await network.servers[1].next_round(0)
            for number in range(WARM):
                await _submit(network.servers, config, number, total)
            before = _traced()
            for number in range(WARM, clients + WARM):
                await _submit(network.servers, config, number, total)
            await trio.sleep(SETTLED)
            part = Layout.submission(config.shape, Trees.OWN).size
            return (_traced() - before) / clients / len(network.servers) - part


def _traced() -> int:
    """Bytes that are in use; from the first call on, of what has been taken since.

    Without what the interpreter's cache of attribute lookups holds: 4,096 names at most, whoever made them.
    """
    forget_lookups = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache  # since Python 3.13; before
    forget_lookups()
    gc.collect()
    if not tracemalloc.is_tracing():
        tracemalloc.start()
    return tracemalloc.get_traced_memory()[0]


@asynccontextmanager
async def _crowded(clients: int, stores: Sequence[Store] = ()) -> AsyncIterator[Network]:
    """Two servers that know so many clients, with these stores, or in memory."""
    network = _Crowded(clients, stores)
    for number in range(clients):
        key = number.to_bytes(32, "little")
        network._registry.add(PublicIdentity(_name(number), key, key))
    async with running(network, SEED):
        yield network


class _Crowded(Network):
    """A simulation that keeps no transcript."""

    def __init__(self, clients: int, stores: Sequence[Store]) -> None:
        self._stores = stores
        super().__init__(task_of(clients), {"block": np.zeros((ROWS, 1), dtype=np.int64)}, SEED, InlineLane())

    def _server_setup(self, index: int, model: dict[str, Any]) -> ServerSetup:
        setup = super()._server_setup(index, model)
        return replace(setup, store=self._stores[index]) if self._stores else setup

    def _watch(self, sender: str, receiver: str, message: Message, bulk: int) -> None:
        """Nothing is kept."""


async def _submit(servers: tuple[Server, ...], config: RoundConfig, number: int, total: np.ndarray) -> None:
    name = _name(number)
    source = SeededSource(SEED, name)
    rows, value = np.array([number % ROWS], dtype=np.uint32), number % 1000 + 1
    client_trees = plant(config, {0: rows}, MasterSeeds.fresh(source), source)
    elements = config.task.ring.encode(np.full((1, 1), value, dtype=np.int64), config.task.largest_integer)
    part = bytes(submission_bulk(config, name, client_trees, {0: (rows, elements)}, Trees.OWN)[0])
    layout = Layout.submission(config.shape, Trees.OWN)
    digest = public_digest(layout, part, tree_digest(layout, part))
    commitments = client_trees.seeds.commitments(config.round_id(), name)
    async with trio.open_nursery() as nursery:
        for index, server in enumerate(servers):
            message = Submit(
                round_id=config.round_id(),
                query=0,
                seed=client_trees.seeds.msk[index],
                commitments=commitments,
                public_digest=digest,
            )
            bulk = memoryview(part) if config.carrier(name) == index else NOTHING
            nursery.start_soon(_receipted, server, name, message, bulk)
    total[rows] += value


async def _receipted(server: Server, name: str, message: Submit, bulk: memoryview) -> None:
    if bulk:
        async with server.requests.begin(name, message, len(bulk)) as complete:
            reply, _ = await complete(bulk, reserve_nothing)
    else:
        reply, _ = await server.requests.ask(name, message, reserve_nothing)
    if not isinstance(reply, Receipt):
        raise FslError(f"{name}: {reply}")


async def _asked(server: Server, config: RoundConfig, name: str) -> int:
    reply, content = await server.requests.ask(name, AskOutcome(round_id=config.round_id()), reserve_nothing)
    if not isinstance(reply, Finished):
        raise FslError(f"{name}: {reply}")
    return len(content) + len(reply.signature)
