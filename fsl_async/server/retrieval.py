"""One server's side of private submodel retrieval: selection bits from trees, one row per tree as the answer.

Rules: the answer is the XOR of the bytes of the rows whose bit is 1, so any dtype comes back bit for bit; queries that
wait at the same time are answered in one pass over the model; the tables are laid out once per hash seed.

Source: paper §"Basic Protocols" (PSR); design §7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.derivation import answer_bytes, forest_roots, public_schedule, tree_keys
from fsl_async.digests import Domain
from fsl_async.geometry import Forest
from fsl_async.server.jobs import Job, ranges, tree_of
from fsl_async.wire.public_part import ForestKey, Part, forests_of

Bits = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Query:
    """A complete retrieval on one server: this server's master seed, and the part that brought the trees."""

    msk: bytes = field(repr=False)
    trees: Part = field(repr=False)


class PermutedModel:
    """The model laid out for retrieval in one round (or session)."""

    def __init__(self, config: RoundConfig, server: int, model: Mapping[str, npt.NDArray[Any]]) -> None:
        """Lay the model out: three permuted copies of every sparse block."""
        self._config = config
        self._server = server
        self._forests = dict(forests_of(config.shape))
        self._rows = {index: _row_bytes(model[block.name], block.rows) for index, block in config.shape.sparse_blocks()}
        self._tables = {key: self._lay_out(key, forest) for key, forest in self._forests.items()}

    @property
    def answer_bytes(self) -> int:
        """The size of one query's answer."""
        return answer_bytes(self._config.shape, {index: rows.shape[1] for index, rows in self._rows.items()})

    def selection_jobs(self, query: Query, threads: int) -> tuple[list[Job], dict[ForestKey, Bits]]:
        """The jobs that expand one query to selection bits, and the arrays that they fill."""
        pieces = query.trees.layout.split(query.trees.data)
        keys = tree_keys(self._config)
        jobs: list[Job] = []
        bits: dict[ForestKey, Bits] = {}
        for key, forest in self._forests.items():
            bits[key] = np.zeros(
                (forest.segments, forest.leaves, -(-forest.bins * forest.positions // 8)), dtype=np.uint8
            )
            evaluation = kernels.Selection(
                keys=keys,
                select=public_schedule(self._config.tree_key(Domain.SELECT)),
                roots=forest_roots(query.msk, key, forest, self._server),
                tree=tree_of(forest, pieces[key, "tree"]),
                select_hints=_select_hints(forest, pieces.get((key, "select"), memoryview(b""))),
                positions=forest.positions,
            )
            jobs += [
                partial(kernels.evaluate_select, evaluation, bits[key], segment, start, stop)
                for segment, start, stop in ranges(forest, threads, multiple=8)
            ]
        return jobs, bits

    def answer_jobs(self, queries: Sequence[Mapping[ForestKey, Bits]], threads: int) -> tuple[list[Job], Bits]:
        """The jobs that answer queries in one pass over the model, and the answers (queries, bytes) that they fill."""
        answers = np.empty((len(queries), self.answer_bytes), dtype=np.uint8)
        jobs: list[Job] = []
        offset = 0
        for key, forest in self._forests.items():
            row_bytes = self._rows[key.block].shape[1]
            stop = offset + forest.trees * row_bytes
            out = answers[:, offset:stop].reshape(len(queries), forest.segments, forest.bins, row_bytes)
            stacked = np.stack([query[key] for query in queries])
            jobs += [
                partial(
                    kernels.select_rows,
                    self._tables[key][segment],
                    stacked[:, segment, : forest.leaves - forest.count_elements],  # the void leaf has no rows
                    out[:, segment],
                    forest.positions,
                    first,
                    last,
                )
                for segment, first, last in ranges(forest, threads)
            ]
            offset = stop
        return jobs, answers

    def _lay_out(self, key: ForestKey, forest: Forest) -> list[Bits]:
        rows = self._rows[key.block]
        if key.forest > 0:  # a stash slot covers the rows in their own order
            return [rows]
        placement = self._config.placement_key(key.block)
        inverses = (
            kernels.Permutation(placement, segment, len(rows)).inverse_table() for segment in range(forest.segments)
        )
        return [kernels.permuted_model(rows, inverse, forest.bins, forest.positions) for inverse in inverses]


def _row_bytes(array: npt.NDArray[Any], rows: int) -> Bits:
    return np.ascontiguousarray(array).view(np.uint8).reshape(rows, -1)


def _select_hints(forest: Forest, piece: memoryview) -> Bits:
    if forest.positions == 1:
        return np.zeros(forest.trees, dtype=np.uint8)
    bits = np.unpackbits(np.frombuffer(piece, dtype=np.uint8), count=forest.trees * forest.positions, bitorder="little")
    return np.packbits(bits.reshape(forest.trees, forest.positions), axis=1, bitorder="little")[:, 0]
