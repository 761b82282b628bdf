"""Kernels of authenticated retrieval: what a server makes of leaves that are also keys.

A lone query is answered in one walk: `answer_alone` climbs 512 trees from one pair of leaves to the next, and
absorbs the rows under both while the rows under the next ones are fetched. Queries that share a pass are expanded one
by one (`keep_keys`); `tag_kept` multiplies a run of rows, once loaded, with the keys of all of them.

Rules: as for `evaluation_kernels`, ranges that do not overlap write disjoint answers; the sums of products are the
caller's own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.multiplying import multiplier_of
from fsl_async.kernels.rows.lanes import accumulate, deliver, spread
from fsl_async.kernels.rows.segment_kernels import grouped_bits, scratch
from fsl_async.kernels.rows.shelves import Shelf, products_of_words, shelf_of
from fsl_async.kernels.rows.tag_lanes import (
    QUERIES,
    WORD_BYTES,
    KeptKeys,
    Rows,
    absorb,
    absorb_kept,
    deliver_piece,
    fetch,
)
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.simd.lowering import compiled, compiled_inline
from fsl_async.kernels.simd.vectors import lanes, load, load_part, multiply_halves, store, store_highs
from fsl_async.kernels.trees.arguments import GROUP, Span, Trees
from fsl_async.kernels.trees.passes import Group, grow_left, left_child, pack_controls
from fsl_async.kernels.trees.walk import climb, new_group, new_row, plant

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Masks = npt.NDArray[np.uint32]

KEPT_BYTES = 2**24
"""The most memory for the keys of queries that share a pass."""
CACHED_BYTES = 2**23
"""The rows that queries read one after the other: a part of the last level's cache."""
LEAST_RUN = 64
SHARED_ROW_BYTES = 96

# A lone query's group is as many trees as have this much in one leaf's rows, so that answers and rows stay in cache.
GROUP_BYTES = 65536
LEAST_GROUP = 64
# Rows of so few pieces are fetched also while the trees grow; the pieces of longer ones leave time enough.
FEW = 2


# How queries are brought together


def answer_queries(queries: Sequence[Trees], table: Bytes, answers: Bytes, sums: Words, span: Span) -> None:
    """Answers uint8 (queries, bins, row_bytes) from rows (leaves·bins, row_bytes), and sums (queries, words, 2)."""
    bins, row_bytes = answers.shape[1:]
    shelf = shelf_of(table, bins)
    multiplier = multiplier_of(queries[0].keys)
    raw = np.zeros((len(queries), 2 * shelf.words), dtype=np.uint64)
    together = sharing(len(queries), row_bytes, span.leaves)
    if together:
        _answer_together(queries[:together], multiplier, shelf, answers[:together], raw[:together], span)
    _answer_in_turn(queries[together:], multiplier, shelf, answers[together:], raw[together:], span)
    sums ^= raw.reshape(len(queries), -1, 2)[:, products_of_words(row_bytes)]


def sharing(queries: int, row_bytes: int, leaves: int) -> int:
    """How many of some waiting queries share a pass over the rows; the others are answered in walks of their own.

    Rows that are multiplied by eight queries' keys at a time are loaded once for eight; but keys must then be written
    and read, which takes longer than loading a short row again from cache, and fewer queries than eight leave registers
    empty. Sixteen queries over rows of 64 bytes take 1.3 times a plain batch in turn, over 128 bytes 3.0 times and 2.7
    together, over 1,024 bytes 4.2 and 2.8 (docs/adr/0036).
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
            answer_alone(query, part, multiplier, shelf, answer, products)


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
    keys = np.empty((len(queries), span.leaves, run + run % 2), dtype=np.uint64)
    own = np.zeros((len(queries), 1, 2), dtype=np.uint64)
    tile, masks = scratch(len(queries), shelf.row_bytes, 1)
    for start in range(span.start, span.stop, run):
        part = span._replace(start=start, stop=min(start + run, span.stop))
        for query, controls, words, pairs in zip(queries, bits, keys, own, strict=True):
            keep_keys(query, part, multiplier, controls, words, pairs)
        grouped = grouped_bits(bits, tile)
        answer_kept(multiplier, shelf, start, grouped, keys, answers[:, start : part.stop], tile, masks, sums)
    sums.reshape(len(queries), -1, 2)[:] ^= own


# One query alone


@compiled
def answer_alone(trees: Trees, span: Span, multiplier: Multiplier, shelf: Shelf, answers: Bytes, sums: Words) -> None:
    """One query's answers and sums of products, in one walk.

    Args:
        trees: the query's.
        span: the bins.
        multiplier: how to multiply.
        shelf: the rows.
        answers: those of the segment, shape (bins, row_bytes); written for the bins of the span.
        sums: flat; for every piece its products, as `absorb` orders them, XORed in place.
    """
    most = max(LEAST_GROUP, min(GROUP, GROUP_BYTES // shelf.row_bytes // LEAST_GROUP * LEAST_GROUP))
    group = new_group(trees, min(most, span.stop - span.start))
    tile = new_row((min(most, span.stop - span.start) * shelf.words + 1) >> 1).reshape(-1)
    for start in range(span.start, span.stop, most):
        count = min(most, span.stop - start)
        plant(trees, group, span.offset + start, count)
        tile[:] = 0
        for leaf in range(0, span.leaves, 2):
            row = climb_to_pair(trees, group, leaf, span.leaves, shelf, start)
            absorb_pair(multiplier, shelf, group, row, leaf, span.leaves, start, count, tile, sums)
        deliver_pieces(shelf, tile, answers, start, count)


@compiled_inline
def climb_to_pair(trees: Trees, group: Group, leaf: int, leaves: int, shelf: Shelf, start: int) -> int:
    """Bring a group to an even leaf and the next one, and return the place of the even leaf's row.

    Meanwhile the rows under the odd one are fetched. Beyond the last leaf its blocks are zeros.
    """
    if group.depth == 0:
        return 0
    above = Group(group.nodes, group.corrections, group.depth - 1, group.width)
    pair = leaf >> 1
    nowhere = 1 << above.depth
    climb(trees, above, pair, pair - 1 if pair else nowhere, (leaves + 1) >> 1)
    if leaf + 1 < leaves:
        fetched = shelf.row_bytes if len(shelf.pieces) <= FEW else 0
        _grow_and_fetch(trees, group, pair & 1, shelf, (leaf + 1) * shelf.bins + start, fetched)
    else:
        grow_left(trees.keys, group, above.depth, pair & 1)
        odd = (2 * group.depth + 1) * group.width
        group.nodes[odd : odd + group.width] = 0
    return 2 * group.depth * group.width


@compiled_inline
def _grow_and_fetch(trees: Trees, group: Group, side: int, shelf: Shelf, place: int, fetched: int) -> None:
    """Both leaves of a row of nodes, as `grow` makes them, while rows from `place` on are fetched."""
    keys, level = trees.keys, group.depth - 1
    nodes, width = group.nodes, group.width
    parents, lefts, rights = (2 * level + side) * width, (2 * level + 2) * width, (2 * level + 3) * width
    for i in range(0, width, lanes(keys)):
        fetch(shelf.table, (place + i) * shelf.row_bytes, lanes(keys) * fetched)
        node = load(keys, nodes, parents + i)
        child = left_child(keys, node, load(keys, group.corrections, level * width + i))
        store(nodes, lefts + i, child)
        store(nodes, rights + i, child ^ node)


@compiled
def absorb_pair(
    multiplier: Multiplier,
    shelf: Shelf,
    group: Group,
    row: int,
    leaf: int,
    leaves: int,
    start: int,
    count: int,
    tile: Words,
    sums: Words,
) -> None:
    """Absorb every piece of the rows under an even leaf and the next one, while rows of the next pair are fetched.

    `row` is the place of the even leaf's blocks. Where there is no odd leaf, its blocks are zeros, and the even leaf's
    rows stand for its own.
    """
    done, pieces, pitch = 0, len(shelf.pieces), shelf.row_bytes
    first = (leaf * shelf.bins + start) * pitch
    under = shelf.bins * pitch
    second = first + under if leaf + 1 < leaves else first
    step, also = pitch // pieces, 0 if pieces <= FEW else under
    for piece in range(pieces):
        offset, size = shelf.pieces[piece]
        ahead = first + 2 * under + piece * count * step
        rows = Rows(shelf.table, first + offset, second + offset, pitch, ahead, ahead + also, step)
        target, total = tile[done * count :], sums[2 * done :]
        absorb(multiplier, size, group.nodes, (row, row + group.width), count, rows, target, total)
        done += (size + 7) >> 3


@compiled
def deliver_pieces(shelf: Shelf, tile: Words, answers: Bytes, start: int, count: int) -> None:
    """Copy a group's answers, piece after piece, to where they belong."""
    done = 0
    for piece in range(len(shelf.pieces)):
        offset, size = shelf.pieces[piece]
        deliver_piece(size, tile[done * count :], count, answers, start, offset)
        done += (size + 7) >> 3


# Queries that share a pass


@compiled
def keep_keys(trees: Trees, span: Span, multiplier: Multiplier, bits: Bytes, keys: Words, own: Blocks) -> None:
    """Write the control bits and the keys of every leaf of a span, and add up what keys of neighbours make.

    Args:
        trees: the query's.
        span: the bins.
        multiplier: how to multiply.
        bits: uint8 (leaves, ≥ bins / 8).
        keys: uint64 (leaves, ≥ bins), an even number for each leaf.
        own: the sum of the products that `absorb_kept` adds beside those of rows; a block, XORed in place.
    """
    nowhere = 1 << len(trees.words)
    flat, pitch = bits.reshape(-1), bits.shape[1]
    pairs, step = keys.reshape((keys.size >> 1, 2)), lanes(trees.keys)
    group, work = new_group(trees, span.stop - span.start), new_row(step)
    for start in range(span.start, span.stop, GROUP):
        place, count = start - span.start, min(GROUP, span.stop - start)
        whole = count - count % step
        plant(trees, group, span.offset + start, count)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            pack_controls(trees.keys, group.nodes, row, count, flat, leaf * pitch + (place >> 3))
            first, half = (leaf * keys.shape[1] + place) >> 1, (count + 1) >> 1
            for i in range(0, whole, step):
                store_highs(pairs, first + (i >> 1), load(trees.keys, group.nodes, row + i))
            for i in range(whole, count):
                keys[leaf, place + i] = group.nodes[row + i, 1]
            if count & 1:
                keys[leaf, place + count] = 0
            for i in range(0, half, step):
                both = multiply_halves(multiplier, load_part(trees.keys, pairs, first + i, min(step, half - i)))
                store(work, 0, load(trees.keys, work, 0) ^ both)
    for i in range(step):
        own[0, 0] ^= work[i, 0]
        own[0, 1] ^= work[i, 1]


@compiled
def answer_kept(
    multiplier: Multiplier,
    shelf: Shelf,
    start: int,
    bits: Bytes,
    keys: Words,
    answers: Bytes,
    tile: Bytes,
    masks: Masks,
    sums: Words,
) -> None:
    """All queries' answers and sums of products over some bins, tile by tile: rows are multiplied while in cache.

    Args:
        multiplier: how to multiply.
        shelf: the rows.
        start: the first bin.
        bits: uint8 (groups, group, leaves, ≥ bins / 8).
        keys: uint64 (queries, leaves, ≥ bins), an even number for each leaf.
        answers: uint8 (queries, bins, row_bytes), written.
        tile: scratch of `accumulate`, uint8 (groups, bins of a tile, lanes, group, lane).
        masks: scratch of `spread`, uint32 (leaves of a tile, ≥ bins of a tile, group).
        sums: uint64 (queries, 2 · words).
    """
    groups, tile_bins, _, size, _ = tile.shape
    leaves, bins = keys.shape[1], answers.shape[1]
    places = shelf.table.reshape((leaves, shelf.bins, shelf.row_bytes))
    for low in range(0, bins, tile_bins):
        count = min(tile_bins, bins - low)
        tile[:] = 0
        for leaf in range(0, leaves, len(masks)):
            last = min(leaf + len(masks), leaves)
            for group in range(groups):
                spread(bits[group, :, leaf:last, low >> 3 : (low + count + 7) >> 3], masks)
                accumulate(tile[group, :count], places[leaf:last, start + low : start + low + count], masks, 1)
            tag_kept(multiplier, shelf, start, keys, leaf, last, low, count, sums)
        for group in range(groups):
            deliver(tile[group, :count], answers[group * size : (group + 1) * size, low : low + count])


@compiled
def tag_kept(
    multiplier: Multiplier,
    shelf: Shelf,
    start: int,
    keys: Words,
    leaf: int,
    last: int,
    low: int,
    count: int,
    sums: Words,
) -> None:
    """Multiply the rows under leaves from `leaf` up to `last` with the keys of queries, a multiple of QUERIES."""
    queries, leaves, bins = keys.shape
    flat, totals, pitch, under = keys.reshape(-1), sums.reshape(-1), sums.shape[1], shelf.bins * shelf.row_bytes
    for query in range(0, queries, QUERIES):
        kept = KeptKeys(flat, (query * leaves + leaf) * bins + low, leaves * bins, bins)
        done = 0
        for piece in range(len(shelf.pieces)):
            offset, size = shelf.pieces[piece]
            first = (leaf * shelf.bins + start + low) * shelf.row_bytes + offset
            rows = Rows(shelf.table, first, first + under, shelf.row_bytes, first, first, 0)
            absorb_kept(multiplier, size, kept, (last - leaf, count), rows, totals[query * pitch + 2 * done :], pitch)
            done += (size + 7) >> 3
