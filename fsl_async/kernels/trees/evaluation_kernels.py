"""Evaluation kernels: what a server does with a client's trees.

Each takes the trees, a range of them (`Span`) and one thing to make of the leaves: shares added to an accumulator,
selection bits, proofs, or the leaves themselves. Ranges that do not overlap write disjoint memory, so threads share an
accumulator without locks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.trees.arguments import GROUP, AskedTotals, Conversion, Slots, Span, TagCheck, Trees
from fsl_async.kernels.trees.passes import (
    Target,
    add_leaf,
    copy_blocks,
    pack_controls,
    pack_slots,
    prove_leaf,
)
from fsl_async.kernels.trees.totals import clear_totals, write_totals
from fsl_async.kernels.trees.walk import climb, new_group, new_row, new_totals, padded, plant, take

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


@compiled
def add(trees: Trees, span: Span, conversion: Conversion, accumulator: Words, totals: AskedTotals) -> None:
    """Add the shares of every leaf to an accumulator of one segment, shape (leaves, planes, bins, 2)."""
    nowhere = 1 << len(trees.words)
    group = new_group(trees, span.stop - span.start)
    work = new_totals(totals, len(conversion.hints))
    for start in range(span.start, span.stop, GROUP):
        first, count = span.offset + start, min(GROUP, span.stop - start)
        plant(trees, group, first, count)
        clear_totals(work)
        target = _aim(span, start, conversion, accumulator)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            add_leaf(conversion, group.nodes, row, leaf, target, work)
        write_totals(totals, work, first, count)


@compiled
def _aim(span: Span, start: int, conversion: Conversion, accumulator: Words) -> Target:
    """The target of the group that begins at bin `start`."""
    leaves, planes, bins, words = accumulator.shape
    trees = conversion.hints.shape[1]
    cells = accumulator.reshape((leaves * planes * bins, words))
    hints = conversion.hints.reshape((planes * trees, words))
    return Target(cells, bins, start, min(GROUP, span.stop - start), hints, trees, span.offset + start)


@compiled
def add_verified(
    trees: Trees,
    span: Span,
    conversion: Conversion,
    accumulator: Words,
    check: TagCheck,
    proofs: Blocks,
    totals: AskedTotals,
) -> None:
    """`add`, and the proof of every tree in the same walk; `proofs` has shape (trees, 2)."""
    nowhere = 1 << len(trees.words)
    group = new_group(trees, span.stop - span.start)
    work = new_totals(totals, len(conversion.hints))
    for start in range(span.start, span.stop, GROUP):
        first, count = span.offset + start, min(GROUP, span.stop - start)
        plant(trees, group, first, count)
        clear_totals(work)
        target = _aim(span, start, conversion, accumulator)
        corrections = take(trees.keys, check.corrections, first, count)
        proof = new_row(len(corrections))
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            prove_leaf(check, leaf, group.nodes, row, corrections, proof)
            add_leaf(conversion, group.nodes, row, leaf, target, work)
        copy_blocks(proof, 0, proofs, first, count)
        write_totals(totals, work, first, count)


@compiled
def add_cached(span: Span, conversion: Conversion, cached: Words, accumulator: Words, totals: AskedTotals) -> None:
    """`add` from leaves that `leaves_of` wrote, shape (leaves, bins, 2): a later epoch without walking trees."""
    first: Any = np.int64(0)  # of a number as it stands here `add_leaf` would be compiled once more, for that number
    work = new_totals(totals, len(conversion.hints))
    for start in range(span.start, span.stop, GROUP):
        clear_totals(work)
        target = _aim(span, start, conversion, accumulator)
        for leaf in range(span.leaves):
            row = take(conversion.keys, cached[leaf], start, target.size)
            add_leaf(conversion, row, first, leaf, target, work)
        write_totals(totals, work, target.tree, target.size)


@compiled
def select(trees: Trees, span: Span, selection: Bytes) -> None:
    """Write the control bits of every leaf, one row of bits per leaf: shape (leaves, pitch)."""
    nowhere = 1 << len(trees.words)
    flat, pitch = selection.reshape(-1), selection.shape[1]
    group = new_group(trees, span.stop - span.start)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        plant(trees, group, span.offset + start, count)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            pack_controls(trees.keys, group.nodes, row, count, flat, leaf * pitch + (start >> 3))


@compiled
def select_slots(trees: Trees, span: Span, slots: Slots, selection: Bytes) -> None:
    """`select` for leaves that cover several positions: as many bits for every bin as positions."""
    nowhere = 1 << len(trees.words)
    flat, pitch = selection.reshape(-1), selection.shape[1]
    group = new_group(trees, span.stop - span.start)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        plant(trees, group, span.offset + start, count)
        hints = _spread_hints(slots, span.offset + start, count)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            first = leaf * pitch + (start * slots.positions >> 3)
            pack_slots(slots, group.nodes, row, hints, count, flat, first)


@compiled
def _spread_hints(slots: Slots, first: int, count: int) -> Blocks:
    row = new_row(padded(slots.keys, count))
    for i in range(count):
        row[i, 0] = slots.hints[first + i]
    return row


@compiled
def leaves_of(trees: Trees, span: Span, chosen: npt.NDArray[np.uint32], leaves: Words) -> None:
    """Write the blocks of chosen leaves, which ascend: shape (chosen, bins, 2)."""
    group = new_group(trees, span.stop - span.start)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        plant(trees, group, span.offset + start, count)
        previous = 1 << len(trees.words)
        for place in range(len(chosen)):
            leaf = int(chosen[place])
            row = climb(trees, group, leaf, previous + leaf if place == 0 else previous, span.leaves)
            copy_blocks(group.nodes, row, leaves[place], start, count)
            previous = leaf
