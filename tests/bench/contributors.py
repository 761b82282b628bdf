"""`bench contributors`: an update with a count on every tree beside the same update without, and what is exchanged.

Both servers add the client's update once before anything is measured, and the counts of its rows are compared with the
rows, so a figure is never that of a wrong count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from msgspec import structs

from fsl_async.client.planting import MasterSeeds, plant
from fsl_async.errors import FslError
from fsl_async.randomness import SeededSource
from fsl_async.server.aggregation import Aggregate
from fsl_async.server.contributors import opened_rows
from fsl_async.task import Task
from fsl_async.wire.public_part import counts_bytes
from parties.commands.bench.machine import run_all
from parties.commands.bench.workload import PROOF_KEY, SEED, Case, Client
from tests.bench.measures import Spread, aes_bound, alternate
from tests.bench.results import Result
from tests.bench.workload import Options

REPETITIONS = 7
SET = (Case(select=10_486, bits=64), Case(rows=197_372, select=418, width=18, bits=64))


def contributors_suite(options: Options) -> Iterator[Result]:
    """A server's work, the bytes up, and a share of the counts, for each case."""
    for case in SET[:1] if options.given else SET:
        chosen = replace(options.apply(case), security="verified")
        counted = structs.replace(chosen.task, min_contributors=2, lying_clients=0)
        plain, with_counts = _client(chosen, chosen.task), _client(chosen, counted)
        _check(with_counts)
        both = Aggregate(plain.config, 0, PROOF_KEY), Aggregate(with_counts.config, 0, PROOF_KEY)
        works = (_adding(both[0], plain, chosen), _adding(both[1], with_counts, chosen), both[1].counts)
        _, (alone, beside, counting) = alternate(REPETITIONS, aes_bound(chosen.threads), *works)
        sizes = [len(client.public_part()) for client in (plain, with_counts)]
        parameters = chosen.parameters() | {"bytes_up": sizes[1], "bytes_up_without": sizes[0]}
        yield Result(
            name=f"server, counts / none, {chosen.title}",
            parameters=parameters | {"seconds_without_counts": alone.median},
            seconds=beside,
            rate=beside.median / alone.median,
            unit="× the time",
        )
        yield Result(
            name=f"bytes up, counts / none, {chosen.title}",
            parameters=parameters,
            seconds=Spread.of([0.0]),
            rate=sizes[1] / sizes[0],
            unit="× the bytes",
        )
        yield Result(
            name=f"share of the counts, {chosen.title}",
            parameters=parameters | {"bytes_between_servers": counts_bytes(counted)},
            seconds=counting,
            rate=chosen.rows / counting.median,
            unit="rows/s",
        )


def _client(case: Case, task: Task) -> Client:
    source, draw = SeededSource(SEED, "counted"), np.random.default_rng(SEED)
    config = structs.replace(case.config, task=task)
    rows = draw.choice(case.rows, case.select, replace=False).astype(np.uint32)
    client_trees = plant(config, {0: rows}, MasterSeeds.fresh(source), source)
    values = draw.integers(1, 2**15, size=(case.select, case.width))
    return Client("counted", config, client_trees, task.ring.encode(values, largest=2**15))


def _adding(aggregate: Aggregate, client: Client, case: Case) -> Callable[[], bytes]:
    submission = client.submissions()[0]

    def work() -> bytes:
        jobs, finish = aggregate.jobs(submission, case.threads)
        run_all(jobs, case.threads)
        return finish()

    return work


def _check(client: Client) -> None:
    """The proofs of both servers agree, and the counts are of the client's rows.

    Raises:
        FslError: they do not.
    """
    proofs, counts = [], []
    for server, submission in enumerate(client.submissions()):
        aggregate = Aggregate(client.config, server, PROOF_KEY)
        for _ in range(2):  # a row is opened from two contributors on
            jobs, finish = aggregate.jobs(submission, 1)
            run_all(jobs, 1)
            proofs.append(finish())
        counts.append(aggregate.counts())
    (opened,) = opened_rows(client.config.task, counts).values()
    placed = np.setdiff1d(client.client_trees.rows[0], client.client_trees.deferred[0])
    if len(set(proofs)) != 1 or not np.array_equal(opened, placed):
        raise FslError("bench: the counts are not those of the client's rows")
