"""What a server's evaluation gains: submissions added several at once beside one by one, and a share formed in pieces.

Both ways add the same submissions with the same threads, in turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from time import process_time
from typing import NamedTuple

from fsl_async.errors import FslError
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.server.batch import at_once
from fsl_async.wire.pieces import spans_of
from parties.commands.bench.machine import cores, run_all
from parties.commands.bench.workload import Case, add_together, aggregate, client_of
from tests.bench.crowd import crowd_round
from tests.bench.measures import Spread, timed
from tests.bench.results import Result

REPETITIONS = 5
CROWD = 100_000
SIZES = ((2**20, 10_486), (2**15, 256))


def batch() -> Iterator[Result]:
    """Submissions added together, against the same one after the other."""
    for rows, select in SIZES:
        case = Case(rows=rows, select=select, bits=64, threads=cores())
        count = at_once(case.config.shape, case.threads)
        submissions = [client_of(case, number).submissions()[0] for number in range(count)]
        state = aggregate(case, 0)
        together, one_by_one = _in_turns(
            partial(add_together, state, submissions, case.threads),
            partial(_add_one_by_one, state, submissions, case.threads),
        )
        processor = {"processor_seconds": together.processor / count, "one_by_one": one_by_one.processor / count}
        yield Result(
            name=f"evaluation, {count} submissions at once, {case.title}",
            parameters=case.parameters() | {"together": count} | processor,
            seconds=together.seconds.times(1 / count),
            rate=count / together.seconds.median,
            unit="submissions/s",
            bound=one_by_one.rate(count),
            against=f"one by one, {case.threads} threads",
        )


def _add_one_by_one(state: Aggregate, submissions: Sequence[Submission], threads: int) -> None:
    for submission in submissions:
        jobs, finish = state.jobs(submission, threads)
        run_all(jobs, threads)
        finish()


def fold() -> Iterator[Result]:
    """A share formed in pieces on all threads, against the same on one."""
    case = Case(rows=2**23, select=10_486, bits=64, threads=cores())
    state = aggregate(case, 0)
    add_together(state, [client_of(case, 0).submissions()[0]], case.threads)  # memory unwritten is none
    pieces = [partial(state.piece, span) for span in spans_of(case.task)]
    all_threads, one = _in_turns(partial(run_all, pieces, case.threads), partial(run_all, pieces, 1))
    processor = {"processor_seconds": all_threads.processor, "on_one_thread": one.processor}
    yield Result(
        name=f"fold, {case.title}",
        parameters=case.parameters() | {"pieces": len(pieces)} | processor,
        seconds=all_threads.seconds,
        rate=case.rows / all_threads.seconds.median,
        unit="rows/s",
        bound=one.rate(case.rows),
        against="the same on one thread",
    )


class Times(NamedTuple):
    """What some work took, again and again.

    Attributes:
        seconds: of the clock.
        processor: the median of what all threads together were at work.
    """

    seconds: Spread
    processor: float

    def rate(self, work: float) -> Spread:
        """Work per second."""
        return Spread(work / self.seconds.median, work / self.seconds.greatest, work / self.seconds.least)


def _in_turns(*works: Callable[[], object]) -> list[Times]:
    """What each work takes, in turns; everything runs once before it is measured."""
    taken: list[list[tuple[float, float]]] = [[] for _ in works]
    for repetition in range(REPETITIONS + 1):
        for times, work in zip(taken, works, strict=True):
            before = process_time()
            spent = timed(work)
            if repetition:
                times.append((spent, process_time() - before))
    return [
        Times(Spread.of([seconds for seconds, _ in times]), median(processor for _, processor in times))
        for times in taken
    ]


def crowd() -> Iterator[Result]:
    """A round of a hundred thousand clients on two servers in this process: it settles, and its sum is exact.

    Raises:
        FslError: a client is not counted, or the sum is wrong.
    """
    seen = crowd_round(CROWD)
    if seen.counted != CROWD:
        raise FslError(f"{seen.counted:,} of {CROWD:,} clients are counted: this must never happen")
    if not seen.exact:
        raise FslError("the sum differs from the sum in the clear: this must never happen")
    yield Result(
        name=f"a round of {CROWD:,} clients, both servers in one process",
        parameters={"clients": CROWD, "settling_seconds": seen.settling, "statement_bytes": 2 * seen.statement_bytes},
        seconds=Spread.of([seen.requests + seen.settling + seen.statements]),
        rate=CROWD / seen.requests,
        unit="clients/s",
    )
