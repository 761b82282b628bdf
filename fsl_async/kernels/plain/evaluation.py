"""A server's walk over a client's trees, a level of some trees at a time, and what it makes of the leaves.

Trees are cut into tiles and their leaves into runs, so that no more than `TILE` leaves lie in memory at a time; every
run begins at the roots again, which costs its leaves' common ancestors, one to a level.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.plain.aes import TILE, control_mask, encrypted, hashed
from fsl_async.kernels.plain.products import products_of_halves
from fsl_async.kernels.plain.rings import add_to, summed
from fsl_async.kernels.trees.arguments import (
    GROUP,
    AskedTotals,
    Conversion,
    Slots,
    Span,
    TagCheck,
    Totals,
    Trees,
)

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.uint32]
Leaves = npt.NDArray[np.int64]

LEAST_TREES = 64


def leaf_blocks(trees: Trees, first: int, count: int, chosen: Leaves) -> Blocks:
    """The blocks of chosen leaves, which ascend, of `count` trees from tree `first` on: (chosen, count, 2).

    Of every level those nodes are made that have a chosen leaf below them. The left child is H(n) ^ t(n)·correction,
    the right one that ^ n (docs/adr/0026).
    """
    depth = len(trees.words)
    nodes, have = trees.roots[np.newaxis, first : first + count], np.zeros(1, dtype=np.int64)
    for level in range(depth):
        below = chosen >> (depth - 1 - level)
        wanted = below[np.flatnonzero(np.diff(below, prepend=-1))]
        parents = np.searchsorted(have, wanted >> 1)
        children = hashed(trees.keys, nodes)
        children ^= control_mask(nodes) & trees.words[level, first : first + count]
        odd = np.negative((wanted & 1).astype(np.uint64))[:, np.newaxis, np.newaxis]
        nodes = children[parents] ^ (nodes[parents] & odd)
        have = wanted
    return nodes[np.searchsorted(have, chosen)]


def tiles(start: int, stop: int, leaves: int) -> Iterator[tuple[int, int]]:
    """Ranges of bins whose leaves fit a tile; they begin at whole bytes of bits where the first one does."""
    size = max(LEAST_TREES, TILE // max(1, leaves) // 8 * 8)
    for first in range(start, stop, size):
        yield first, min(first + size, stop)


def runs(leaves: int, count: int) -> Iterator[tuple[int, int]]:
    """Ranges of leaves of `count` trees that fit a tile."""
    size = 1 << (max(1, TILE // max(1, count)).bit_length() - 1)
    for first in range(0, leaves, size):
        yield first, min(first + size, leaves)


def walk(trees: Trees, offset: int, start: int, stop: int, leaves: int) -> Iterator[tuple[int, Blocks]]:
    """Runs of leaves of the bins of a tile: the first leaf, and the blocks (run, bins, 2)."""
    for first, last in runs(leaves, stop - start):
        yield first, leaf_blocks(trees, offset + start, stop - start, np.arange(first, last, dtype=np.int64))


def shares_of(conversion: Conversion, plane: int, leaves: Blocks, hints: Blocks) -> Blocks:
    """C(n) + t(n)·hint of every leaf."""
    shares = hashed(conversion.keys, leaves ^ np.array([plane << 1, 0], dtype=np.uint64))
    add_to(conversion.ring_bits, shares, control_mask(leaves) & hints)
    return shares


def _add_leaves(
    conversion: Conversion,
    leaves: Blocks,
    first: int,
    bins: tuple[int, int, int],
    accumulator: Words,
    totals: AskedTotals,
) -> None:
    """Add a run of leaves' shares, from leaf `first` on; bins: the segment's first tree, and the tile's range."""
    offset, start, stop = bins
    of_trees, bits = slice(offset + start, offset + stop), conversion.ring_bits
    for plane in range(len(conversion.hints)):
        shares = shares_of(conversion, plane, leaves, conversion.hints[plane, of_trees])
        add_to(bits, accumulator[first : first + len(leaves), plane, start:stop], shares)
        if isinstance(totals, Totals):
            if not first:
                totals.sums[plane, of_trees] = 0
            add_to(bits, totals.sums[plane, of_trees], summed(bits, shares))


def add(trees: Trees, span: Span, conversion: Conversion, accumulator: Words, totals: AskedTotals) -> None:
    """Add the shares of every leaf to an accumulator of one segment, shape (leaves, planes, bins, 2)."""
    for start, stop in tiles(span.start, span.stop, span.leaves):
        for first, leaves in walk(trees, span.offset, start, stop, span.leaves):
            _add_leaves(conversion, leaves, first, (span.offset, start, stop), accumulator, totals)


def add_verified(
    trees: Trees,
    span: Span,
    conversion: Conversion,
    accumulator: Words,
    check: TagCheck,
    proofs: Blocks,
    totals: AskedTotals,
) -> None:
    """`add`, and every tree's proof: the sum of products of both halves of v ^ q_x, v = T(n, x) ^ t(n)·correction."""
    for start, stop in tiles(span.start, span.stop, span.leaves):
        of_trees = slice(span.offset + start, span.offset + stop)
        proofs[of_trees] = 0
        for first, leaves in walk(trees, span.offset, start, stop, span.leaves):
            run = slice(first, first + len(leaves))
            masked = leaves ^ check.masks[run, np.newaxis]
            corrected = encrypted(check.tag, masked) ^ masked ^ (control_mask(leaves) & check.corrections[of_trees])
            products = products_of_halves(corrected ^ check.hash_keys[run, np.newaxis])
            proofs[of_trees] ^= np.bitwise_xor.reduce(products, axis=0)
            _add_leaves(conversion, leaves, first, (span.offset, start, stop), accumulator, totals)


def add_cached(span: Span, conversion: Conversion, cached: Words, accumulator: Words, totals: AskedTotals) -> None:
    """`add` from leaves that `leaves_of` wrote, shape (leaves, bins, 2)."""
    for start, stop in tiles(span.start, span.stop, span.leaves):
        for first, last in runs(span.leaves, stop - start):
            leaves = cached[first:last, start:stop]
            _add_leaves(conversion, leaves, first, (span.offset, start, stop), accumulator, totals)


def add_places(
    trees: Trees,
    conversion: Conversion,
    bounds: tuple[int, int, int, int],
    bins: Indices,
    starts: Indices,
    cells: Words,
    totals: AskedTotals,
) -> None:
    """Add the shares at the chosen places of some bins of one segment to their cells, (planes·places, 2)."""
    offset, begin, end, leaves = bounds
    bits, of_plane = conversion.ring_bits, cells.reshape(len(conversion.hints), len(bins), 2)
    for start in range(begin, end, GROUP):
        count = min(GROUP, end - start)
        ends = starts[start // GROUP * leaves :][: leaves + 1].astype(np.int64)
        sizes = np.diff(ends)
        chosen = np.flatnonzero(sizes)
        if isinstance(totals, Totals):
            totals.sums[:, offset + start : offset + start + count] = 0
        for first, last in runs(len(chosen), count):
            run = chosen[first:last]
            blocks = leaf_blocks(trees, offset + start, count, run)
            places = slice(int(ends[run[0]]), int(ends[run[-1] + 1]))
            of_run, within = np.repeat(np.arange(len(run)), sizes[run]), bins[places].astype(np.int64) - start
            for plane in range(len(conversion.hints)):
                hints = conversion.hints[plane, offset + start + within]
                shares = shares_of(conversion, plane, blocks[of_run, within], hints)
                add_to(bits, of_plane[plane, places], shares)
                if isinstance(totals, Totals):
                    everywhere = np.zeros_like(blocks)
                    everywhere[of_run, within] = shares
                    add_to(bits, totals.sums[plane, offset + start : offset + start + count], summed(bits, everywhere))


def leaves_of(trees: Trees, span: Span, chosen: Indices, leaves: Words) -> None:
    """Write the blocks of chosen leaves, which ascend: shape (chosen, bins, 2)."""
    for start, stop in tiles(span.start, span.stop, len(chosen)):
        for first, last in runs(len(chosen), stop - start):
            run = chosen[first:last].astype(np.int64)
            leaves[first:last, start:stop] = leaf_blocks(trees, span.offset + start, stop - start, run)


def select(trees: Trees, span: Span, selection: Bytes) -> None:
    """Write the control bits of every leaf, one row of bits per leaf: shape (leaves, pitch)."""
    for start, stop in tiles(span.start, span.stop, span.leaves):
        for first, leaves in walk(trees, span.offset, start, stop, span.leaves):
            _pack(leaves[..., 0].astype(np.uint8) & np.uint8(1), selection, first, start)


def select_slots(trees: Trees, span: Span, slots: Slots, selection: Bytes) -> None:
    """`select` for leaves that cover several positions: the low bits of H(n) ^ t(n)·hint, as many as positions."""
    shifts = np.arange(slots.positions, dtype=np.uint8)
    for start, stop in tiles(span.start, span.stop, span.leaves):
        hints = slots.hints[span.offset + start : span.offset + stop]
        for first, leaves in walk(trees, span.offset, start, stop, span.leaves):
            marks = hashed(slots.keys, leaves)[..., 0].astype(np.uint8)
            marks ^= control_mask(leaves)[..., 0].astype(np.uint8) & hints
            bits = marks[..., np.newaxis] >> shifts & np.uint8(1)
            _pack(bits.reshape(len(leaves), -1), selection, first, start * slots.positions)


def _pack(bits: Bytes, selection: Bytes, first: int, place: int) -> None:
    """Pack a run of leaves' bits, lowest first, from bit `place` on."""
    packed = np.packbits(bits, axis=1, bitorder="little")
    selection[first : first + len(bits), place // 8 : place // 8 + packed.shape[1]] = packed
