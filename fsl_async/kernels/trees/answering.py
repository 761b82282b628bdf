"""The server's side of an authenticated retrieval: answers and their tags, from trees and a segment of the model.

Source: paper §"Basic Protocols" (PSR) for the answers; `rows.tagging` for the tags.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import read_only, require, writable
from fsl_async.kernels.lane import passes_of
from fsl_async.kernels.rows.tagging import tag_words
from fsl_async.kernels.trees.arguments import Span
from fsl_async.kernels.trees.evaluation import Selection, trees_of

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


def answer_tagged(
    queries: Sequence[Selection], table: Bytes, answers: Bytes, sums: Words, segment: int, start: int, stop: int
) -> None:
    """Answer queries for some bins of one segment, and add their leaves' products to the queries' tags.

    Calls for ranges of bins that do not overlap may run in threads side by side if each has sums of its own.

    Args:
        queries: the trees of each query, of one shape; a leaf covers one position.
        table: one segment of the model, uint8 (leaves · bins, row_bytes): `permuted_model`, or the rows themselves
            where there is one bin. Leaves beyond it cover no row.
        answers: the XOR of the selected rows of every bin; uint8 (queries, bins, row_bytes), rows contiguous; written
            for the bins of the range.
        sums: unreduced products, low word first; uint64 (queries, words, 2), contiguous; XORed in place.
            See `finish_tags`.
        segment: the segment of the bins.
        start: first bin.
        stop: one past the last bin.

    Raises:
        MisuseError: for wrong types or shapes, bins outside the segment, or leaves that cover several positions.
    """
    _, bins, row_bytes = answers.shape
    words = tag_words(row_bytes)
    require("answers", answers, np.uint8, (len(queries), bins, row_bytes))
    if answers.size and row_bytes > 1 and answers.strides[2] != 1:
        raise MisuseError(f"answers: expected contiguous rows, got strides {answers.strides}")
    writable("sums", sums, np.uint64, (len(queries), words, 2))
    table = read_only("table", table, np.uint8, (-1, row_bytes))
    leaves = _leaves_over(table, bins)
    for query in queries:
        _check(query, bins, leaves, (segment, start, stop))
    if not queries or not row_bytes or start == stop:
        return
    span = Span(segment * bins, start, stop, leaves)
    trees = [trees_of(query) for query in queries]
    passes_of(*(query.keys for query in queries)).answer_queries(trees, table, answers, sums, span)


def _leaves_over(table: Bytes, bins: int) -> int:
    leaves = len(table) // max(1, bins)
    if not leaves or leaves * bins != len(table):
        raise MisuseError(f"table: expected a whole number of leaves of {bins} rows, got {len(table)} rows")
    return leaves


def _check(query: Selection, bins: int, leaves: int, part: tuple[int, int, int]) -> None:
    segment, start, stop = part
    if query.positions != 1:
        raise MisuseError(f"a leaf of a tagged retrieval covers one position, not {query.positions}")
    if query.tree.count % bins or leaves > 2**query.tree.depth:
        raise MisuseError(
            f"{query.tree.count} trees of at most {2**query.tree.depth} leaves do not cover {leaves} rows in each of "
            f"{bins} bins of a segment"
        )
    segments = query.tree.count // bins
    if not (0 <= segment < segments and 0 <= start <= stop <= bins):
        raise MisuseError(f"segment {segment}, bins {start} to {stop}: there are {segments} segments of {bins} bins")
