"""`bench growth`: how costs grow with rows, selection, width, clients and threads, one of them at a time.

One curve is a client's: its trees planted and its public part made. The other is a server's: its evaluation of every
client with proofs, one after the other. Both have m = 2^18, k/m = 1 %, width 1, l = 64 and one client and thread, but
for what grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from fsl_async.client.planting import plant
from fsl_async.randomness import SeededSource
from parties.commands.bench.machine import cores, run_all
from parties.commands.bench.workload import SEED, Case, aggregate
from tests.bench.measures import aes_bound, alternate
from tests.bench.results import Result
from tests.bench.workload import Options, aes_per_leaf, clients_of

REPETITIONS = 5
START = Case(rows=2**18, select=2621, bits=64)


class Axis(NamedTuple):
    """What grows.

    Attributes:
        name: the field of a case, as results' parameters name it.
        label: what a plot's axis says.
        cases: from small to large.
    """

    name: str
    label: str
    cases: Sequence[Case]


def axes(start: Case) -> tuple[Axis, ...]:
    """All that grows."""
    rows = [
        replace(start, rows=start.rows * 4**step // 64, select=start.select * 4**step // 64 + 1) for step in range(6)
    ]
    parts = [replace(start, select=max(1, start.rows * part // 1000)) for part in (1, 3, 10, 30, 100, 300)]
    widths = [replace(start, width=width) for width in (1, 2, 4, 8, 16, 32, 64)]
    clients = [replace(start, clients=clients) for clients in (1, 2, 4, 8, 16)]
    threads = [
        replace(start, rows=4 * start.rows, select=4 * start.select, threads=count) for count in _powers(cores())
    ]
    return (
        Axis("rows", "m, rows (k/m = 1 %)", rows),
        Axis("select", "k, rows selected", parts),
        Axis("width", "τ, weights in a row", widths),
        Axis("clients", "clients", clients),
        Axis("threads", "threads", threads),
    )


def _powers(most: int) -> list[int]:
    return [2**power for power in range(most.bit_length())]


def growth_suite(options: Options) -> Iterator[Result]:
    """Every axis from its start, of which the caller may fix what does not grow."""
    for axis in axes(options.apply(START)):
        for case in axis.cases:
            yield from _costs(axis, case)


def _costs(axis: Axis, case: Case) -> Iterator[Result]:
    clients = clients_of(case)
    source = SeededSource(SEED, "growth")
    server = aggregate(case, 0)
    submissions = [client.submissions()[0] for client in clients]
    prepared = [server.jobs(submission, case.threads)[0] for submission in submissions]

    def generate() -> None:
        plant(case.config, {0: clients[0].rows}, clients[0].client_trees.seeds, source)
        clients[0].public_part()

    def evaluate() -> None:
        for jobs in prepared:
            run_all(jobs, case.threads)

    blocks, (client_seconds, server_seconds) = alternate(REPETITIONS, aes_bound(case.threads), generate, evaluate)
    per_leaf = aes_per_leaf(case)
    parameters = case.parameters() | {"axis": axis.name, "upload_bytes": len(submissions[0].part.data)}
    yield Result(
        name=f"{axis.name} = {getattr(case, axis.name):,}: generate",
        parameters=parameters | {"curve": "generate"},
        seconds=client_seconds,
        rate=case.forest.trees / client_seconds.median,
        unit="trees/s",
    )
    yield Result(
        name=f"{axis.name} = {getattr(case, axis.name):,}: evaluate",
        parameters=parameters | {"curve": "evaluate"},
        seconds=server_seconds,
        rate=case.clients * case.leaves / server_seconds.median,
        unit="leaves/s",
        bound=blocks.times(1 / per_leaf),
        against=f"AES in cache, {per_leaf} blocks to a leaf",
    )
