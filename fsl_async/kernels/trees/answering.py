"""The server's side of an authenticated retrieval: answers and their tags, from trees and a segment of the model.

Source: paper §"Basic Protocols" (PSR) for the answers; `rows.tagging` for the tags.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import read_only, require, writable
from fsl_async.kernels.multiplying import multiplier_of
from fsl_async.kernels.rows.segments import grouped_bits, scratch
from fsl_async.kernels.rows.shelves import Shelf, products_of_words, shelf_of, tag_words
from fsl_async.kernels.rows.tag_lanes import QUERIES, WORD_BYTES
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.trees import answering_kernels as kernels
from fsl_async.kernels.trees.evaluation import Selection, trees_of
from fsl_async.kernels.trees.evaluation_kernels import Span
from fsl_async.kernels.trees.walk import Trees

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

KEPT_BYTES = 2**24
"""The most memory for the keys of queries that share a pass."""
CACHED_BYTES = 2**23
"""The rows that queries read one after the other: a part of the last level's cache."""
LEAST_RUN = 64
SHARED_ROW_BYTES = 96


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
    shelf = shelf_of(table, bins)
    multiplier = multiplier_of(queries[0].keys)
    raw = np.zeros((len(queries), 2 * shelf.words), dtype=np.uint64)
    span = Span(segment * bins, start, stop, leaves)
    trees = [trees_of(query) for query in queries]
    together = sharing(len(queries), row_bytes, leaves)
    if together:
        _answer_together(trees[:together], multiplier, shelf, answers[:together], raw[:together], span)
    _answer_in_turn(trees[together:], multiplier, shelf, answers[together:], raw[together:], span)
    sums ^= raw.reshape(len(queries), -1, 2)[:, products_of_words(row_bytes)]


def sharing(queries: int, row_bytes: int, leaves: int) -> int:
    """How many of some waiting queries share a pass over the rows; the others are answered in walks of their own.

    Rows that are multiplied by eight queries' keys at a time are loaded once for eight; but keys must then be written
    and read, which takes longer than loading a short row again from cache, and fewer queries than eight leave registers
    empty. Sixteen queries over rows of 64 bytes take 1.3 times a plain batch in turn and 1.9 times together; over 72
    bytes 1.5 and 2.1, over 128 bytes 1.9 and 1.8, over 256 bytes 2.7 and 2.2, over 1,024 bytes 5 and 3.3.
    What is kept for a few bins must not take more memory than KEPT_BYTES, as for a stash slot over all rows.
    """
    kept = KEPT_BYTES // (leaves * LEAST_RUN * WORD_BYTES)
    return min(queries, kept) // QUERIES * QUERIES if row_bytes >= SHARED_ROW_BYTES else 0


def _answer_in_turn(
    queries: Sequence[Trees], multiplier: Multiplier, shelf: Shelf, answers: Bytes, sums: Words, span: Span
) -> None:
    """Answer queries in walks of their own, a run of bins after the other: the next query finds the rows in cache."""
    bins = span.stop - span.start
    most = CACHED_BYTES // (shelf.row_bytes * span.leaves) // LEAST_RUN * LEAST_RUN
    run = bins if len(queries) == 1 else max(LEAST_RUN, most)
    for start in range(span.start, span.stop, run):
        part = span._replace(start=start, stop=min(start + run, span.stop))
        for query, answer, products in zip(queries, answers, sums, strict=True):
            kernels.answer_alone(query, part, multiplier, shelf, answer, products)


def _answer_together(
    queries: Sequence[Trees], multiplier: Multiplier, shelf: Shelf, answers: Bytes, sums: Words, span: Span
) -> None:
    """Answer queries for a run of bins after the other: first all their keys, then one pass over the run's rows.

    There are no more queries than `sharing` says, so that the keys of a run of `LEAST_RUN` bins can be kept.
    """
    bins = span.stop - span.start
    most = KEPT_BYTES // (WORD_BYTES * len(queries) * span.leaves)
    run = min(bins, most // LEAST_RUN * LEAST_RUN)
    bits = np.zeros((len(queries), span.leaves, -(-run // 8)), dtype=np.uint8)
    keys = np.empty((len(queries), span.leaves, run), dtype=np.uint64)
    tile, masks = scratch(len(queries), shelf.row_bytes, 1)
    for start in range(span.start, span.stop, run):
        part = span._replace(start=start, stop=min(start + run, span.stop))
        for query, controls, words in zip(queries, bits, keys, strict=True):
            kernels.keep_keys(query, part, controls, words)
        grouped = grouped_bits(bits, 0, run, tile)
        kernels.answer_kept(multiplier, shelf, start, grouped, keys, answers[:, start : part.stop], tile, masks, sums)


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
