"""One server's side of private submodel retrieval: one row per tree as the answer, and tags of all rows.

Rules: the answer is the XOR of the bytes of the rows whose bit is 1, so any dtype comes back bit for bit; wherever a
leaf covers one row, tags go with it by which a client notices a wrong answer of either server; queries that wait at the
same time are answered in one pass over the model; the tables are laid out once per hash seed.

Source: paper §"Basic Protocols" (PSR); design §7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.config import RoundConfig
from fsl_async.derivation import expansion_keys, forest_roots, public_schedule
from fsl_async.digests import Domain
from fsl_async.errors import MisuseError
from fsl_async.geometry import Forest
from fsl_async.server.slicing import ForestSlice, Job, Slice, ranges, whole
from fsl_async.task import Task
from fsl_async.wire.answer import AnswerLayout
from fsl_async.wire.public_part import ForestKey, Part, forests_of

Bits = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Query:
    """A complete retrieval on one server: this server's master seed, and the part that brought the trees."""

    msk: bytes = field(repr=False)
    trees: Part = field(repr=False)


@dataclass(frozen=True)
class Pass:
    """One pass over the model for some queries: jobs in two steps, and what is made of them in the end.

    Jobs of one step may run side by side; those of the second begin when those of the first are done.

    Attributes:
        selecting: the first step; empty where every block is authenticated.
        answering: the second.
        answers: uint8 (queries, bytes); complete once `finish` has returned it.
        sums: by authenticated block, what each of its jobs summed for the tags; uint64 (queries, words, 2) each.
        tags: by authenticated block, where its tags stand in an answer.
    """

    selecting: list[Job]
    answering: list[Job]
    answers: Bits = field(repr=False)
    sums: Mapping[int, Sequence[Words]] = field(default_factory=dict, repr=False)
    tags: Mapping[int, slice] = field(default_factory=dict)

    def finish(self) -> Bits:
        """The answers, when all jobs are done."""
        for block, place in self.tags.items():
            sums = self.sums[block]
            self.answers[:, place] = kernels.finish_tags(np.stack(sums)).astype("<u8").view(np.uint8) if sums else 0
        return self.answers


class PermutedModel:
    """The model laid out for retrieval in one round (or session)."""

    def __init__(
        self, config: RoundConfig, server: int, model: Mapping[str, npt.NDArray[Any]], some: Slice | None = None
    ) -> None:
        """Lay the model out: three permuted copies of every sparse block.

        Args:
            config: the round.
            server: 0 or 1.
            model: by sparse block, its rows.
            some: the slice whose trees are answered, with what `joined` makes an answer of; by default all.
        """
        self._config = config
        self._server = server
        forests = dict(forests_of(config.shape))
        some = whole(config.shape) if some is None else some
        self._cuts = {key: ForestSlice(forests[key], bins) for key, bins in some.items()}
        self._rows = {index: _row_bytes(model[block.name], block.rows) for index, block in config.shape.sparse_blocks()}
        self._tables = {key: self._lay_out(key, cut) for key, cut in self._cuts.items()}
        self._expansion_keys = expansion_keys(config)
        row_bytes = {index: rows.shape[1] for index, rows in self._rows.items()}
        self._layout = AnswerLayout.of(config.shape, row_bytes, {key: cut.forest for key, cut in self._cuts.items()})

    @property
    def answer_bytes(self) -> int:
        """The size of one query's answer."""
        return self._layout.size

    def begin(self, queries: Sequence[Query], threads: int) -> Pass:
        """What answers queries that wait at the same time; `threads` of its jobs may run side by side."""
        work = Pass([], [], np.empty((len(queries), self._layout.size), dtype=np.uint8))
        sums: dict[int, list[Words]] = {index: [] for index in self._layout.tags}
        for key, cut in self._cuts.items():
            forest = cut.forest
            views = [self._selection(query, key, cut) for query in queries]
            row_bytes = self._rows[key.block].shape[1]
            rows = work.answers[:, self._layout.rows[key]]
            rows = rows.reshape(len(queries), forest.segments, forest.bins, row_bytes)
            if key.block in self._layout.tags:
                for segment, start, stop in ranges(forest, threads):
                    products = np.zeros((len(queries), kernels.tag_words(row_bytes), 2), dtype=np.uint64)
                    sums[key.block].append(products)
                    table = self._tables[key][segment]
                    out = rows[:, segment], products, segment, start, stop
                    work.answering.append(partial(kernels.answer_tagged, views, table, *out))
            else:
                self._select_first(work, key, forest, views, rows, threads)
        return replace(work, sums=sums, tags=self._layout.tags)

    def _select_first(
        self, work: Pass, key: ForestKey, forest: Forest, views: list[kernels.Selection], rows: Bits, threads: int
    ) -> None:
        """Where a leaf covers several rows: every query's selection bits, then one pass over the rows for all."""
        pitch = -(-forest.bins * forest.positions // 8)
        bits = np.zeros((len(views), forest.segments, forest.leaves, pitch), dtype=np.uint8)
        for view, own in zip(views, bits, strict=True):
            work.selecting.extend(
                partial(kernels.evaluate_select, view, own, segment, start, stop)
                for segment, start, stop in ranges(forest, threads, multiple=8)
            )
        for segment, start, stop in ranges(forest, threads):
            chosen = bits[:, segment], rows[:, segment], forest.positions, start, stop
            work.answering.append(partial(kernels.select_rows, self._tables[key][segment], *chosen))

    def _selection(self, query: Query, key: ForestKey, cut: ForestSlice) -> kernels.Selection:
        pieces = query.trees.layout.split(query.trees.data)
        return kernels.Selection(
            keys=self._expansion_keys,
            select=public_schedule(self._config.tree_key(Domain.SELECT)),
            roots=forest_roots(query.msk, key, cut.whole, self._server, cut.bins),
            tree=cut.trees(pieces[key, "tree"]),
            select_hints=cut.of_trees(_select_hints(cut.whole, pieces.get((key, "select"), memoryview(b"")))),
            positions=cut.whole.positions,
        )

    def _lay_out(self, key: ForestKey, cut: ForestSlice) -> list[Bits]:
        forest, rows = cut.whole, self._rows[key.block]
        if key.forest > 0:  # a stash slot covers the rows in their own order
            return [rows]
        placement = self._config.placement_key(key.block)
        inverses = (
            kernels.Permutation(placement, segment, len(rows)).inverse_table() for segment in range(forest.segments)
        )
        return [kernels.permuted_model(rows, inverse, forest.bins, forest.positions, cut.bins) for inverse in inverses]


def layout_of(shape: Task, row_bytes: Mapping[int, int], some: Slice) -> AnswerLayout:
    """The layout of a slice's answers; see `joined`."""
    forests = dict(forests_of(shape))
    return AnswerLayout.of(
        shape, row_bytes, {key: ForestSlice(forests[key], bins).forest for key, bins in some.items()}
    )


def joined(shape: Task, row_bytes: Mapping[int, int], parts: Sequence[tuple[Slice, Bits]]) -> Bits:
    """The answers that slices' answers to the same queries make: their rows side by side, and the sum of their tags.

    Args:
        shape: the round's task, with its blocks as they are in the round.
        row_bytes: by sparse block, bytes of a row.
        parts: every slice of the round with what it answers; uint8 (queries, bytes).

    Raises:
        MisuseError: an answer has another form than its slice's answers have.
    """
    forests, layout = dict(forests_of(shape)), AnswerLayout.of(shape, row_bytes)
    answers = np.zeros((len(parts[0][1]), layout.size), dtype=np.uint8)
    for some, part in parts:
        cuts = {key: ForestSlice(forests[key], bins) for key, bins in some.items()}
        own = layout_of(shape, row_bytes, some)
        if part.dtype != np.uint8 or part.shape != (len(answers), own.size):
            raise MisuseError(f"expected answers of {own.size} bytes to {len(answers)} queries, got {part.shape}")
        for key, cut in cuts.items():
            size = row_bytes[key.block]
            rows = answers[:, layout.rows[key]].reshape(len(answers), cut.whole.segments, cut.whole.bins, size)
            rows[:, :, cut.bins.start : cut.bins.stop] = part[:, own.rows[key]].reshape(
                len(answers), cut.whole.segments, len(cut.bins), size
            )
        for block, place in layout.tags.items():
            answers[:, place] ^= part[:, own.tags[block]]
    return answers


def _row_bytes(array: npt.NDArray[Any], rows: int) -> Bits:
    return np.ascontiguousarray(array).view(np.uint8).reshape(rows, -1)


def _select_hints(forest: Forest, piece: memoryview) -> Bits:
    if forest.positions == 1:
        return np.zeros(forest.trees, dtype=np.uint8)
    bits = np.unpackbits(np.frombuffer(piece, dtype=np.uint8), count=forest.trees * forest.positions, bitorder="little")
    return np.packbits(bits.reshape(forest.trees, forest.positions), axis=1, bitorder="little")[:, 0]
