"""Seconds of the basic protocol: a client generates, a server evaluates, and aggregates what it evaluated.

Each step is what a party of a deployment runs, on one thread, and its seconds are those of the processor, so that
other load on the machine does not count. Both servers' sum is compared with the sum in the clear.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from examples.paper.cells import Run, Values
from fsl_async import FslError
from fsl_async.client.planting import plant
from fsl_async.randomness import SeededSource
from fsl_async.server.aggregation import Aggregate, Submission, split_share
from parties.commands.bench.workload import SEED, Case, Client, aggregate, client_of, expected

SECURITIES: tuple[Literal["semi-honest", "verified"], ...] = ("semi-honest", "verified")
BITS: Literal[128] = 128


def steps(run: Run) -> Values:
    """Seconds of generation, evaluation and aggregation, once for each repeat, semi-honest and verified.

    Parameters: `rows`, `select`, `repeats`.
    """
    values: Values = {}
    for part, security in enumerate(SECURITIES):
        case = Case(
            rows=run.parameters["rows"], select=run.parameters["select"], bits=BITS, security=security, threads=1
        )
        client = client_of(case, 0)
        _check(case, client)
        seconds: dict[str, list[float]] = {"generation": [], "evaluation": [], "aggregation": []}
        for repeat in range(run.parameters["repeats"]):
            _measure(case, client, seconds)
            done = (part + (repeat + 1) / run.parameters["repeats"]) / len(SECURITIES)
            run.progress(done, f"{security}, repeat {repeat + 1}")
        forest = case.forest
        values[security] = {**seconds, "trees": forest.trees, "bin_size": forest.bin_size, "depth": forest.depth}
    return values


def _measure(case: Case, client: Client, seconds: dict[str, list[float]]) -> None:
    """Each step once."""
    seconds["generation"].append(_timed(lambda: _generate(case, client)))
    submission, state = client.submissions()[0], aggregate(case, 0)
    seconds["evaluation"].append(_timed(lambda: _evaluate(state, submission)))
    seconds["aggregation"].append(_timed(state.share))


def _generate(case: Case, client: Client) -> None:
    """All that a client computes of a submission: places, trees, hints, proofs, up to the bytes that it sends."""
    plant(case.config, {0: client.rows}, client.client_trees.seeds, SeededSource(SEED, client.name))
    client.public_part()


def _evaluate(state: Aggregate, submission: Submission) -> None:
    """All that a server computes of a submission: every leaf of every tree, added to the sum of the bins."""
    jobs, finish = state.jobs(submission, 1)
    for job in jobs:
        job()
    finish()


def _timed(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def _check(case: Case, client: Client) -> None:
    """One round of one client, which warms compilers and caches too.

    Raises:
        FslError: the sum is wrong.
    """
    shares: list[Any] = []
    for server, submission in enumerate(client.submissions()):
        state = aggregate(case, server)
        _evaluate(state, submission)
        shares.append(split_share(case.task, state.share())["block"])
    if not np.array_equal(case.task.ring.add(*shares), expected(case, [client])):
        raise FslError("the sum differs from the sum in the clear: this must never happen")
