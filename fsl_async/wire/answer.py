"""The bytes of an answer to a retrieval: one row for every tree, then the tags that authenticate them.

A block is authenticated where every leaf of its trees covers one row; then each word of its rows has a tag, one for all
of the block's trees together. Where leaves cover several rows (small rows of semi-honest tasks), they share a key, and
there is no tag.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsl_async.geometry import Forest, geometry_of
from fsl_async.task import Task
from fsl_async.wire.public_part import ForestKey, forests_of

TAG_BYTES = 8
"""Of the tag of one word, and of the word."""


@dataclass(frozen=True)
class AnswerLayout:
    """Where the rows and the tags of an answer stand.

    Attributes:
        size: bytes of an answer.
        rows: by forest, where its rows stand.
        tags: by sparse block that is authenticated, where its tags stand.
    """

    size: int
    rows: Mapping[ForestKey, slice]
    tags: Mapping[int, slice]

    @staticmethod
    def of(
        shape: Task, row_bytes: Mapping[int, int], forests: Mapping[ForestKey, Forest] | None = None
    ) -> AnswerLayout:
        """The layout in rounds of a shape.

        Args:
            shape: the task, as the round carries it.
            row_bytes: by sparse block, bytes of one row of the model.
            forests: those whose trees are answered, for a part of an answer; by default all.
        """
        rows: dict[ForestKey, slice] = {}
        tags: dict[int, slice] = {}
        stop = 0
        for key, forest in (dict(forests_of(shape)) if forests is None else forests).items():
            start, stop = stop, stop + forest.trees * row_bytes[key.block]
            rows[key] = slice(start, stop)
        for index, block in shape.sparse_blocks():
            if all(forest.positions == 1 for forest in geometry_of(shape, block).forests):
                start, stop = stop, stop + TAG_BYTES * -(-row_bytes[index] // TAG_BYTES)
                tags[index] = slice(start, stop)
        return AnswerLayout(stop, rows, tags)
