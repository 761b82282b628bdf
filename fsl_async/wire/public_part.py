"""The byte layout of a client's public part: where each forest's trees, hints and corrections are.

The public part goes once, to the carrier, which forwards it; its digest goes to the other server directly. Every size
is implied by the task, so a part of another size is refused before it is read.

    retrieval:    trees, selection hints                            of each sparse block, each forest
    submission:   salt
                  [trees,] hints, [tag corrections]                 of each sparse block, each forest
                  digest of the dense share                         where any block is dense

A submission brings trees of its own, or uses those of a retrieval in the same round, or those of a session. In a
session it brings hints only, because the session's trees were proved when it began. All that hides its values depends
on its one salt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from fsl_async.blocks import Block, Dense
from fsl_async.digests import DIGEST_BYTES
from fsl_async.geometry import Forest, RowNumbers, geometry_of
from fsl_async.options.fields import TaskFields


class ForestKey(NamedTuple):
    """A forest of a task: the block's index, and the forest's index in the block."""

    block: int
    forest: int


class Piece(NamedTuple):
    """One run of bytes, maybe none: its forest (None: all), its kind, and its place `[start:stop]` in the part."""

    key: ForestKey | None
    kind: str
    start: int
    stop: int


Sized: TypeAlias = tuple[ForestKey | None, str, int]


def forests_of(task: TaskFields) -> Iterator[tuple[ForestKey, Forest]]:
    """All forests of a task, in the order of the wire."""
    for index, block in task.sparse_blocks():
        for number, forest in enumerate(geometry_of(task, block).forests):
            yield ForestKey(index, number), forest


class Trees(Enum):
    """Where a submission's trees come from."""

    OWN = "own"
    RETRIEVAL = "retrieval"
    SESSION = "session"


@dataclass(frozen=True)
class Layout:
    """Where the pieces of one kind of public part are."""

    pieces: tuple[Piece, ...]

    @staticmethod
    @lru_cache(maxsize=64)
    def retrieval(task: TaskFields) -> Layout:
        """The public part of a retrieval."""
        return _laid_out(_of_forests(task, ("tree", "select")))

    @staticmethod
    @lru_cache(maxsize=64)
    def submission(task: TaskFields, trees: Trees) -> Layout:
        """The public part of a submission whose trees come from `trees`."""
        pieces = _of_forests(task, ("tree", "hint", "proof") if trees is Trees.OWN else ("hint", "proof"))
        if trees is Trees.SESSION or not task.verified:
            pieces = [(key, kind, 0 if kind == "proof" else size) for key, kind, size in pieces]
        dense = DIGEST_BYTES if dense_bytes(task) else 0
        return _laid_out([(None, "salt", SALT_BYTES), *pieces, (None, "dense", dense)])

    @property
    def size(self) -> int:
        """Bytes in all."""
        return self.pieces[-1].stop if self.pieces else 0

    def split(self, data: memoryview) -> dict[tuple[ForestKey | None, str], memoryview]:
        """Views of the pieces of a part of exactly `size` bytes."""
        return {(piece.key, piece.kind): data[piece.start : piece.stop] for piece in self.pieces}


@dataclass(frozen=True)
class Part:
    """One public part as a server holds it: its bytes and their layout."""

    layout: Layout
    data: memoryview = field(repr=False)


def _of_forests(task: TaskFields, kinds: tuple[str, ...]) -> list[Sized]:
    return [(key, kind, _SIZES[kind](forest)) for key, forest in forests_of(task) for kind in kinds]


def _laid_out(pieces: list[Sized]) -> Layout:
    stops = accumulate(size for _, _, size in pieces)
    return Layout(
        tuple(Piece(key, kind, stop - size, stop) for (key, kind, size), stop in zip(pieces, stops, strict=True))
    )


SALT_BYTES = 16

_SIZES: Mapping[str, Callable[[Forest], int]] = {
    "tree": lambda forest: forest.tree_bytes,
    "select": lambda forest: forest.select_bytes,
    "hint": lambda forest: forest.hint_bytes,
    "proof": lambda forest: forest.proof_bytes,
}


def first_padding(task: TaskFields, layout: Layout, data: memoryview) -> tuple[ForestKey, str] | None:
    """The first piece whose padding, after bits packed into bytes, is not zero; None where all padding is.

    No evaluation reads the padding, so without this check one submission would have many encodings.
    """
    forests = dict(forests_of(task))
    for piece in layout.pieces:
        if piece.key and _has_padding(forests[piece.key], piece.kind, data[piece.start : piece.stop]):
            return piece.key, piece.kind
    return None


def _has_padding(forest: Forest, kind: str, piece: memoryview) -> bool:
    bits = forest.trees * forest.positions
    return kind == "select" and bits % 8 != 0 and any(last >> bits % 8 for last in piece[-1:])


OpenedRows: TypeAlias = Mapping[str, RowNumbers]
"""By block, the rows that are opened, ascending; of a block that is left out all are."""

ALL_ROWS: OpenedRows = MappingProxyType({})
"""Where contributors are not counted."""


def dense_bytes(task: TaskFields) -> int:
    """Bytes of a client's share of all dense blocks, and of those that the round moves plainly."""
    return sum(block.size for block in task.blocks if isinstance(block, Dense)) * task.ring.element_bytes


def share_bytes(task: TaskFields, opened: OpenedRows = ALL_ROWS) -> int:
    """Bytes of a server's share of the aggregate, or of the rows of it that are opened."""
    weights = sum(math.prod(shape_of_share(block, opened)) for block in task.blocks)
    return weights * task.ring.element_bytes


def shape_of_share(block: Block, opened: OpenedRows) -> tuple[int, ...]:
    """The shape of a block's array in a share: of the opened rows alone where not all are."""
    return (len(opened[block.name]), *block.shape[1:]) if block.name in opened else block.shape


COUNT_BYTES = 4
"""Of a row's count in a share of the counts: a count is below 2^31, so its share needs no more of the ring's bits."""


def counts_bytes(task: TaskFields) -> int:
    """Bytes of a server's share of the counts of contributors: a word for every row of every sparse block."""
    return sum(block.rows for _, block in task.sparse_blocks()) * COUNT_BYTES
