"""`bench din`: the paper's comparison, a round of a deep interest network, between parties in memory.

The network's embedding has 197,372 rows of 18 weights, of which a client uses 418, and 64,327 other weights that every
client uses. All parties, channels and records are the deployed ones. They share one thread here, so each party's time
is that of its tasks; bytes are those on the wire, framing included.

Source: paper §"Comparing with Existing Scheme"; Niu et al. 2020 for the network.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import trio

from examples.paper.efficiency.printed import PrintedTime
from examples.secagg.party_clock import CLIENT, SERVERS, PartyClock
from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.errors import FslError
from fsl_async.geometry import geometry_of
from fsl_async.wire.public_part import dense_bytes
from parties.client.client import Client
from parties.commands.bench.workload import SEED
from parties.simulation.network import Network, simulate
from tests.bench.measures import Spread
from tests.bench.results import Result, Target
from tests.bench.workload import Options

ROWS, WIDTH, SELECT, DENSE = 197_372, 18, 418, 64_327
CLIENTS, BITS = 3, 128
ROUNDS = 3
CLIENT_SECONDS, SERVER_SECONDS = 3.0, 60.0
EMBEDDING_BYTES, DENSE_BYTES = 1.4 * 2**20, 0.98 * 2**20
"""The paper's MB are MiB: 64,327 weights of 16 bytes are its 0.98."""
NO_TIME = Spread(0, 0, 0)


def din_suite(options: Options) -> Iterator[Result]:
    """Rounds of a few clients.

    Raises:
        FslError: a sum is wrong.
    """
    task = Task(
        name="din",
        blocks=(
            Sparse("items", rows=options.rows or ROWS, width=options.width or WIDTH, select=options.select or SELECT),
            Dense("other", size=DENSE),
        ),
        ring=Ring(options.bits or BITS, fraction_bits=16),
        min_clients=2,
    )
    clients = max(task.quorum, options.clients or CLIENTS)
    account = RoundFigures()
    trio.run(_rounds, task, clients, account, instruments=(account.clock,), strict_exception_groups=True)
    yield from _figures(task, clients, account)


@dataclass
class RoundFigures:
    """The measurements of the rounds.

    Attributes:
        clock: how long each party's tasks ran.
        client: seconds of one client in one round: retrieval, encoding, submission.
        server: seconds of one server for one round with all its clients.
        retrieval_up: bytes that a client sent to retrieve.
        submission_up: bytes that it sent to submit.
        down: bytes that it received in a round.
    """

    clock: PartyClock = field(default_factory=lambda: PartyClock(time.perf_counter))
    client: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    retrieval_up: int = 0
    submission_up: int = 0
    down: int = 0


async def _rounds(task: Task, clients: int, account: RoundFigures) -> None:
    """Rounds of all clients; the first warms up compilers and caches, and is not measured."""
    generator = np.random.default_rng(SEED)
    items = task.sparse(0)
    model = {
        "items": generator.standard_normal((items.rows, items.width), dtype=np.float32),
        "other": generator.standard_normal(DENSE, dtype=np.float32),
    }
    async with simulate(task, model, SEED) as network, AsyncExitStack() as stack:
        parties = [await stack.enter_async_context(network.client(f"client-{number}")) for number in range(clients)]
        for _ in range(ROUNDS):
            await _round(network, parties, generator, account)
    del account.client[:clients], account.server[:1]


async def _round(
    network: Network, parties: list[Client], generator: np.random.Generator, account: RoundFigures
) -> None:
    before = dict(account.clock.seconds)
    items = network.task.sparse(0)
    total = np.zeros((items.rows, items.width))
    for client in parties:
        rows = generator.choice(items.rows, items.select, replace=False)
        delta = generator.integers(-100, 100, (items.select, items.width)).astype(np.float64)
        await _take_part(client, rows, delta, account)
        total[rows] += delta
    started = account.clock.seconds[CLIENT]
    outcome = await network.finish_round()
    waited = account.clock.seconds[CLIENT] - started  # spent closing the round on the servers' behalf
    busiest = max(account.clock.seconds[server] - before[server] for server in SERVERS)
    account.server.append(busiest + waited)
    if not np.array_equal(outcome.update["items"], total):
        raise FslError("the round's sum differs from the sum in the clear: this must never happen")


async def _take_part(
    client: Client, rows: npt.NDArray[np.int64], delta: npt.NDArray[np.float64], account: RoundFigures
) -> None:
    started, sent, received = account.clock.seconds[CLIENT], client.bytes_sent, client.bytes_received
    await client.retrieve({"items": rows})
    account.retrieval_up = client.bytes_sent - sent
    receipt = await client.submit({"items": (rows, delta), "other": np.ones(DENSE)})
    account.submission_up = receipt.bytes_sent
    account.down = client.bytes_received - received
    account.client.append(account.clock.seconds[CLIENT] - started)


def _figures(task: Task, clients: int, account: RoundFigures) -> Iterator[Result]:
    items = task.sparse(0)
    parameters = {
        "rows": items.rows,
        "width": items.width,
        "select": items.select,
        "dense": DENSE,
        "bits": task.ring.bits,
        "clients": clients,
        "threads": 1,
        "trees": geometry_of(planned(task), planned(task).sparse(0)).trees,
    }
    dense = dense_bytes(task)
    sparse = account.retrieval_up + account.submission_up - dense
    sizes = (
        ("upload for the embedding: trees, hints, proofs", sparse, EMBEDDING_BYTES),
        ("upload for the other components", dense, DENSE_BYTES),
        ("upload, retrieval and submission", sparse + dense, EMBEDDING_BYTES + DENSE_BYTES),
        ("download", account.down, None),
    )
    for name, size, paper in sizes:
        yield Result(
            name=f"{name}, per client", parameters=parameters, seconds=NO_TIME, rate=size, unit="bytes", paper=paper
        )
    times = (("client, whole round", account.client, CLIENT_SECONDS), ("server", account.server, SERVER_SECONDS))
    for name, seconds, limit in times:
        spread = Spread.of(seconds)
        yield Result(
            name=f"{name}, {clients} clients" if name == "server" else name,
            parameters=parameters,
            seconds=spread,
            rate=1 / spread.median,
            unit="per s",
            paper=PrintedTime(limit),
            targets=(Target(spread.median, "at most", limit, "s"),),
        )
