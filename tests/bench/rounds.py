"""`bench round`: a whole round of secure aggregation without a network, from rows chosen to sums folded and combined.

Both servers run one after the other, each alone on the machine, so the seconds of one server are what it would take on
a machine of its own. The combined sum is compared with the sum in the clear: a benchmark of a wrong result is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter

import numpy as np

from examples.paper.efficiency.printed import PrintedTime, evaluation_time
from fsl_async.client.planting import plant
from fsl_async.errors import FslError
from fsl_async.randomness import SeededSource
from fsl_async.server.aggregation import Submission, split_share
from parties.commands.bench.machine import cores, run_all
from parties.commands.bench.workload import SEED, Case, Client, aggregate, client_of, expected
from tests.bench.alone import server_alone
from tests.bench.measures import Spread, aes_bound, timed
from tests.bench.results import Result, Target
from tests.bench.workload import Options, aes_per_leaf

CLIENTS = 4
LARGE_ROWS = 2**25
EVALUATION_TARGET = 1.5
MEMORY_TARGET = 6 * 2**30
WARM_ROWS = 4096
PAPER_CASE = (2**20, 104_858, 1, 128)
PAPER = {
    "generate, per client": PrintedTime(22.806),
    "evaluate, per client": evaluation_time(*PAPER_CASE[:2]),
}


def round_suite(options: Options) -> Iterator[Result]:
    """One round: of the paper's largest measured case, or of the one that is asked for."""
    threads = options.threads or cores()
    default = Case(rows=2**20, select=104_858, clients=CLIENTS, threads=threads)
    if options.given and options.rows is not None and options.rows >= LARGE_ROWS:
        default = replace(default, select=10_486, clients=2)  # 1 %
    yield from whole_round(options.apply(default))


def large_round() -> Iterator[Result]:
    """The largest round, m = 2^25, 1 %, 32 bits: `bench round --rows 33554432 --bits 32`."""
    yield from round_suite(Options(rows=LARGE_ROWS, bits=32))


@dataclass(frozen=True)
class Timing:
    """Seconds of every step of one round, and the bound measured in between.

    Attributes:
        generate: for each client, its trees, hints and proofs up to the bytes that it sends.
        prepare: for each client and server, the submission's bytes made ready for the kernels.
        evaluate: for each client and server, its trees and hints added to the sum.
        finish: for each client and server, its proof digested.
        fold: for each server, the sum folded to rows.
        combine: both shares added.
        blocks: AES blocks per second.
    """

    generate: list[float] = field(default_factory=list)
    prepare: list[float] = field(default_factory=list)
    evaluate: list[float] = field(default_factory=list)
    finish: list[float] = field(default_factory=list)
    fold: list[float] = field(default_factory=list)
    combine: list[float] = field(default_factory=list)
    blocks: list[float] = field(default_factory=list)

    @property
    def server(self) -> float:
        """Seconds of one server for the whole round, half of what both took."""
        return sum(map(sum, (self.prepare, self.evaluate, self.finish, self.fold))) / 2


def whole_round(case: Case) -> Iterator[Result]:
    """A round and every step of it, and the memory that a server takes for it.

    Raises:
        FslError: the sum is wrong.
    """
    _run(replace(case, rows=min(case.rows, WARM_ROWS), select=1, clients=1))
    clients, timing = _run(case)
    yield from _steps(case, timing)
    yield _memory(case, clients)


def _run(case: Case) -> tuple[list[Client], Timing]:
    timing = Timing()
    clients, submissions = [], []
    for number in range(case.clients):
        client = client_of(case, number)
        clients.append(client)
        submissions.append(client.submissions())
        timing.generate.append(timed(partial(_generate, case, client)))
    shares = [_serve(case, server, [pair[server] for pair in submissions], timing) for server in (0, 1)]
    first, second = (split_share(case.task, share)["block"] for share in shares)
    with _clock(timing.combine):
        total = case.task.ring.add(first, second)
    if not np.array_equal(total, expected(case, clients)):
        raise FslError("the round's sum differs from the sum in the clear: this must never happen")
    return clients, timing


def _generate(case: Case, client: Client) -> None:
    """What a client computes: the same trees again, and its public part."""
    plant(case.config, {0: client.rows}, client.client_trees.seeds, SeededSource(SEED, client.name))
    client.public_part()


def _serve(case: Case, server: int, submissions: Sequence[Submission], timing: Timing) -> bytes:
    """One server's round: every client's submission, then its share."""
    state, bound = aggregate(case, server), aes_bound(case.threads)
    for submission in submissions:
        with _clock(timing.prepare):
            jobs, finish = state.jobs(submission, case.threads)
        with _clock(timing.evaluate):
            run_all(jobs, case.threads)
        with _clock(timing.finish):
            finish()
        timing.blocks.append(bound.measure())
    with _clock(timing.fold):
        return state.share()


@contextmanager
def _clock(seconds: list[float]) -> Iterator[None]:
    started = perf_counter()
    yield
    seconds.append(perf_counter() - started)


def _steps(case: Case, timing: Timing) -> Iterator[Result]:
    papers = PAPER if (case.rows, case.select, case.width, case.bits) == PAPER_CASE else {}
    blocks, per_leaf = Spread.of(timing.blocks), aes_per_leaf(case)
    steps = {
        "generate, per client": timing.generate,
        "prepare, per client": timing.prepare,
        "evaluate, per client": timing.evaluate,
        "digest, per client": timing.finish,
        "fold": timing.fold,
        "combine": timing.combine,
        "one server, whole round": [timing.server],
    }
    for name, seconds in steps.items():
        evaluation = name.startswith("evaluate")
        spread = Spread.of(seconds)
        yield Result(
            name=f"{name}, {case.title}",
            parameters=case.parameters(),
            seconds=spread,
            rate=(case.leaves if evaluation else 1) / spread.median,
            unit="leaves/s" if evaluation else "per s",
            bound=blocks.times(1 / per_leaf) if evaluation else None,
            against=f"AES in cache, {per_leaf} blocks to a leaf" if evaluation else "",
            paper=papers.get(name),
            targets=_evaluation_targets(case, spread) if evaluation else (),
        )


def _evaluation_targets(case: Case, seconds: Spread) -> tuple[Target, ...]:
    large = case.rows == LARGE_ROWS and case.bits == 32 and case.width == 1
    return (Target(seconds.median, "at most", EVALUATION_TARGET, "s"),) if large else ()


def _memory(case: Case, clients: Sequence[Client]) -> Result:
    account = server_alone(case, clients, fold=True)
    large = case.rows == LARGE_ROWS and case.bits == 32 and case.width == 1
    targets = (Target(account.peak / 2**30, "at most", MEMORY_TARGET / 2**30, "GiB"),) if large else ()
    return Result(
        name=f"peak memory of one server, {case.title}",
        parameters=case.parameters() | account.parameters(),
        seconds=Spread.of(account.evaluation),
        rate=account.peak,
        unit="bytes",
        targets=targets,
    )
