"""`bench psr`: answers to one query and to sixteen that wait together, compared with reading memory.

An answer reads every row in each of the three segments, so 3·m·row bytes are counted whatever the number of queries;
turning a query's trees into selection bits is counted apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fsl_async.geometry import SEGMENTS
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.wire.public_part import ForestKey
from parties.commands.bench.measures import Spread, aes_bound, alternate, read_bound, run_all
from parties.commands.bench.results import Result, Target
from parties.commands.bench.workload import Case, Options, client_of

__all__ = ["Desk", "psr_suite"]

Bits = npt.NDArray[np.uint8]

REPETITIONS = 7
WALK_BLOCKS = 2
WAITING = 16
BATCH_TARGET = 4.0
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

    def select(self, queries: Sequence[Query]) -> list[Mapping[ForestKey, Bits]]:
        """Every query's selection bits."""
        found: list[Mapping[ForestKey, Bits]] = []
        for query in queries:
            jobs, bits = self.shelves.selection_jobs(query, self.case.threads)
            run_all(jobs, self.case.threads)
            found.append(bits)
        return found

    def answer(self, selections: Sequence[Mapping[ForestKey, Bits]]) -> Bits:
        """All queries' answers, in one pass over the model."""
        jobs, answers = self.shelves.answer_jobs(selections, self.case.threads)
        run_all(jobs, self.case.threads)
        return answers


def _retrieve(case: Case) -> Iterator[Result]:
    desk = Desk.of(case)
    queries = [client_of(case, number).query(0) for number in range(WAITING)]
    selections = desk.select(queries)
    passes = [partial(desk.answer, selections[:count]) for count in (1, WAITING)]
    wholes = [partial(_both, desk, queries[:count]) for count in (1, WAITING)]
    memory, (one, many, whole_one, whole_many) = alternate(REPETITIONS, read_bound(case.threads), *passes, *wholes)
    yield _selection(case, desk, queries[0])
    batch = Target(many.median / one.median, "at most", BATCH_TARGET, "× the time of one")
    yield _against_memory(f"row pass, 1 query, {case.title}", case, 1, one, memory)
    yield _against_memory(f"row pass, {WAITING} queries, {case.title}", case, WAITING, many, memory, batch)
    yield _against_memory(f"bits and row pass, 1 query, {case.title}", case, 1, whole_one, memory)
    yield _against_memory(f"bits and row pass, {WAITING} queries, {case.title}", case, WAITING, whole_many, memory)


def _both(desk: Desk, queries: Sequence[Query]) -> Bits:
    return desk.answer(desk.select(queries))


def _selection(case: Case, desk: Desk, query: Query) -> Result:
    bound = aes_bound(case.threads)
    blocks, (seconds,) = alternate(REPETITIONS, bound, lambda: desk.select([query]))
    return Result(
        name=f"selection bits, 1 query, {case.title}",
        parameters=case.parameters() | {"queries": 1, "aes_blocks_per_leaf": WALK_BLOCKS},
        seconds=seconds,
        rate=case.leaves / seconds.median,
        unit="leaves/s",
        bound=blocks.times(1 / WALK_BLOCKS),
        against=f"{bound.name}, {WALK_BLOCKS} blocks to a leaf",
    )


def _against_memory(name: str, case: Case, queries: int, seconds: Spread, memory: Spread, *targets: Target) -> Result:
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
        targets=targets,
    )
