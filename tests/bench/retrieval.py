"""`bench psr`: answers to one query and to sixteen that wait together, compared with reading memory.

An answer reads every row in each of the three segments, so 3·m·row bytes are counted whatever the number of queries.
Its time holds all that a server computes: the walk over the query's trees, the answer, and its tags.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fsl_async.geometry import SEGMENTS
from fsl_async.server.retrieval import PermutedModel, Query
from parties.commands.bench.machine import run_all
from parties.commands.bench.workload import Case, client_of
from tests.bench.measures import Spread, alternate, read_bound
from tests.bench.results import Result
from tests.bench.workload import Options

Bits = npt.NDArray[np.uint8]

REPETITIONS = 7
WAITING = 16
WEIGHT_BYTES = 4
SET = (Case(width=16, select=10_486, bits=32), Case(width=16, select=104_858, bits=32))
"""Rows of 64 bytes."""


def psr_suite(options: Options) -> Iterator[Result]:
    """A set of cases, or the one that is asked for."""
    for case in SET[:1] if options.given else SET:
        yield from _retrieve(options.apply(case))


@dataclass(frozen=True)
class Desk:
    """One server with its model laid out."""

    case: Case
    shelves: PermutedModel

    @staticmethod
    def of(case: Case) -> Desk:
        """A server with a random model of 32-bit floats' bytes."""
        model = np.random.default_rng(1).integers(0, 2**32, (case.rows, case.width), dtype=np.uint32)
        return Desk(case, PermutedModel(case.config, 0, {"block": model}))

    def answer(self, queries: Sequence[Query]) -> Bits:
        """All queries' answers, in one pass over the model."""
        work = self.shelves.begin(queries, self.case.threads)
        for jobs in (work.selecting, work.answering):
            run_all(jobs, self.case.threads)
        return work.finish()


def _retrieve(case: Case) -> Iterator[Result]:
    desk = Desk.of(case)
    queries = [client_of(case, number).query(0) for number in range(WAITING)]
    passes = [partial(desk.answer, queries[:count]) for count in (1, WAITING)]
    memory, (one, many) = alternate(REPETITIONS, read_bound(case.threads), *passes)
    yield _against_memory(f"answer, 1 query, {case.title}", case, 1, one, memory)
    yield _against_memory(f"answers, {WAITING} queries, {case.title}", case, WAITING, many, memory)


def _against_memory(name: str, case: Case, queries: int, seconds: Spread, memory: Spread) -> Result:
    row_bytes = case.width * WEIGHT_BYTES
    counted = SEGMENTS * case.rows * row_bytes
    return Result(
        name=name,
        parameters=case.parameters() | {"queries": queries, "row_bytes": row_bytes, "bytes": counted},
        seconds=seconds,
        rate=counted / seconds.median,
        unit="bytes/s",
        bound=memory,
        against="reading memory",
    )
