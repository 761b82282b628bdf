"""`bench retrieval`: authenticated answers beside plain ones, from the same trees and rows, in one run.

Measured are the kernels of one block's bins: selection bits and the pass over the rows, and the walk that makes answers
and tags together. The tag adds 8 bytes a word of a row to each server's answer, and nothing to the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.derivation import expansion_keys, forest_roots, public_schedule
from fsl_async.digests import Domain
from fsl_async.geometry import SEGMENTS
from fsl_async.server.slicing import tree_of
from fsl_async.wire.public_part import ForestKey
from parties.commands.bench.workload import Case, client_of
from tests.bench.measures import aes_bound, alternate
from tests.bench.results import Result, Target
from tests.bench.workload import Options

Bytes = npt.NDArray[np.uint8]

REPETITIONS = 7
WAITING = 16
WEIGHT_BYTES = 4
BINS = ForestKey(0, 0)
SET = (
    Case(width=16, select=10_486, bits=32),
    Case(rows=197_372, width=32, select=418, bits=32),
    Case(rows=2**16, width=256, select=655, bits=32),
)
"""Rows of 64, of 128 and of 1,024 bytes."""

TARGETS = {1: 1.0, WAITING: 1.8}
"""By queries that wait together, the most that the authenticated path may take of the plain one's time for short rows:
the longer a row, the less of its time is a tree's."""
SHORT_ROW_BYTES = 64


def retrieval_suite(options: Options) -> Iterator[Result]:
    """A lone query and sixteen together, of each case."""
    for case in SET[:1] if options.given else SET:
        chosen = replace(options.apply(case), security="verified", threads=1)
        desk = Bins.of(chosen)
        for waiting in (1, WAITING):
            yield desk.compared(waiting)


@dataclass(frozen=True)
class Bins:
    """One server's rows, laid out for one block's bins, and clients' trees."""

    case: Case
    tables: Sequence[Bytes]
    selections: Sequence[kernels.Selection]

    @staticmethod
    def of(case: Case) -> Bins:
        """Random rows, and as many clients as may wait."""
        rows = np.random.default_rng(1).integers(0, 256, (case.rows, case.width * WEIGHT_BYTES), dtype=np.uint8)
        placement, bins = case.config.placement_key(BINS.block), case.forest.bins
        inverses = (kernels.Permutation(placement, segment, case.rows).inverse_table() for segment in range(SEGMENTS))
        tables = [kernels.permuted_model(rows, inverse, bins, 1) for inverse in inverses]
        return Bins(case, tables, [_selection(case, number) for number in range(WAITING)])

    def compared(self, waiting: int) -> Result:
        """Both paths' times."""
        works = partial(self._plain, waiting), partial(self._tagged, waiting)
        _, (plain, tagged) = alternate(REPETITIONS, aes_bound(1), *works)
        row_bytes = self.case.width * WEIGHT_BYTES
        times = tagged.median / plain.median
        targets = (Target(times, "at most", TARGETS[waiting], "× the time"),)
        return Result(
            name=f"authenticated / plain, {waiting} quer{'y' if waiting == 1 else 'ies'}, {self.case.title}",
            parameters=self.case.parameters()
            | {
                "queries": waiting,
                "row_bytes": row_bytes,
                "answer_bytes": self.case.forest.trees * row_bytes,
                "tag_bytes": 8 * kernels.tag_words(row_bytes),
                "seconds_plain": plain.median,
                "seconds_a_query": tagged.median / waiting,
            },
            seconds=tagged,
            rate=times,
            unit="× the time",
            targets=targets if row_bytes <= SHORT_ROW_BYTES else (),
        )

    def _answers(self, waiting: int) -> Bytes:
        forest = self.case.forest
        return np.empty((waiting, forest.segments, forest.bins, self.case.width * WEIGHT_BYTES), dtype=np.uint8)

    def _plain(self, waiting: int) -> Bytes:
        """Every query's selection bits, then one pass over the rows for all of them."""
        forest, answers = self.case.forest, self._answers(waiting)
        bits = np.zeros((waiting, forest.segments, forest.leaves, -(-forest.bins // 8)), dtype=np.uint8)
        for query, selection in enumerate(self.selections[:waiting]):
            for segment in range(forest.segments):
                kernels.evaluate_select(selection, bits[query], segment, 0, forest.bins)
        for segment, table in enumerate(self.tables):
            kernels.select_rows(table, bits[:, segment], answers[:, segment], 1, 0, forest.bins)
        return answers

    def _tagged(self, waiting: int) -> Bytes:
        """Every query's answers and tag."""
        forest, answers = self.case.forest, self._answers(waiting)
        words = kernels.tag_words(answers.shape[-1])
        sums = np.zeros((forest.segments, waiting, words, 2), dtype=np.uint64)
        for segment, table in enumerate(self.tables):
            queries = self.selections[:waiting]
            kernels.answer_tagged(queries, table, answers[:, segment], sums[segment], segment, 0, forest.bins)
        kernels.finish_tags(sums)
        return answers


def _selection(case: Case, number: int) -> kernels.Selection:
    query = client_of(case, number).query(0)
    forest = case.forest
    return kernels.Selection(
        keys=expansion_keys(case.config),
        select=public_schedule(case.config.tree_key(Domain.SELECT)),
        roots=forest_roots(query.msk, BINS, forest, 0),
        tree=tree_of(forest, query.trees.layout.split(query.trees.data)[BINS, "tree"]),
        select_hints=np.zeros(forest.trees, dtype=np.uint8),
        positions=1,
    )
