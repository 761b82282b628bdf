"""Evaluation kernels: what a server does with a client's trees.

Each takes the trees, a range of them (`Span`) and one thing to make of the leaves: shares added to an accumulator,
selection bits, proofs, or the leaves themselves. Ranges that do not overlap write disjoint memory, so threads share an
accumulator without locks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.isa import Keys
from fsl_async.kernels.passes import TagCheck, add_leaf, copy_blocks, pack_controls, pack_slots, prove_leaf
from fsl_async.kernels.vectors import Blocks, compiled
from fsl_async.kernels.walk import GROUP, Trees, climb, new_rows, padded, plant, take

__all__ = ["Conversion", "Slots", "Span", "add", "add_cached", "add_verified", "leaves_of", "select", "select_slots"]

Rows = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class Span(NamedTuple):
    """A range of bins of one segment.

    Attributes:
        offset: the tree of the segment's bin 0.
        start: first bin.
        stop: one past the last bin.
        leaves: leaves of every tree.
    """

    offset: int
    start: int
    stop: int
    leaves: int


class Conversion(NamedTuple):
    """How leaves become ring elements.

    Attributes:
        keys: conversion keys of the block and epoch.
        hints: shape (planes, trees, 2).
        ring_bits: 32, 64 or 128.
    """

    keys: Keys
    hints: Rows
    ring_bits: int


class Slots(NamedTuple):
    """How a leaf selects one of the positions it covers.

    Attributes:
        keys: selection keys.
        hints: one per tree, below 2^positions.
        positions: 2 or 4.
    """

    keys: Keys
    hints: Bytes
    positions: int


@compiled
def add(trees: Trees, span: Span, conversion: Conversion, accumulator: Rows) -> None:
    """Add the shares of every leaf to an accumulator of one segment, shape (leaves, planes, bins, 2)."""
    nowhere = 1 << len(trees.words)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        group = plant(trees, span.offset + start, count)
        hints = _take_hints(conversion, span.offset + start, count)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            _add_planes(conversion, row, hints, accumulator[leaf], start, count)


@compiled
def _take_hints(conversion: Conversion, first: int, count: int) -> Rows:
    hints = new_rows(len(conversion.hints), padded(conversion.keys, count))
    for plane in range(len(hints)):
        hints[plane, count:] = 0
        copy_blocks(conversion.hints[plane], first, hints[plane], 0, count)
    return hints


@compiled
def _add_planes(conversion: Conversion, row: Blocks, hints: Rows, planes: Rows, start: int, count: int) -> None:
    for plane in range(len(hints)):
        target = planes[plane, start : start + count]
        add_leaf(conversion.keys, row, hints[plane], conversion.ring_bits, plane, target)


@compiled
def add_verified(
    trees: Trees, span: Span, conversion: Conversion, accumulator: Rows, check: TagCheck, proofs: Blocks
) -> None:
    """`add`, and the proof of every tree in the same walk; `proofs` has shape (trees, 2)."""
    nowhere = 1 << len(trees.words)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        first = span.offset + start
        group = plant(trees, first, count)
        hints = _take_hints(conversion, first, count)
        corrections = take(trees.left, check.corrections, first, count)
        proof = np.zeros_like(corrections)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            prove_leaf(check, leaf, row, corrections, proof)
            _add_planes(conversion, row, hints, accumulator[leaf], start, count)
        copy_blocks(proof, 0, proofs, first, count)


@compiled
def add_cached(span: Span, conversion: Conversion, cached: Rows, accumulator: Rows) -> None:
    """`add` from leaves that `leaves_of` wrote, shape (leaves, bins, 2): a later epoch without walking trees."""
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        hints = _take_hints(conversion, span.offset + start, count)
        for leaf in range(span.leaves):
            row = take(conversion.keys, cached[leaf], start, count)
            _add_planes(conversion, row, hints, accumulator[leaf], start, count)


@compiled
def select(trees: Trees, span: Span, selection: Bytes) -> None:
    """Write the control bits of every leaf, one row of bits per leaf: shape (leaves, pitch)."""
    nowhere = 1 << len(trees.words)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        group = plant(trees, span.offset + start, count)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            pack_controls(trees.left, row, count, selection[leaf, start >> 3 :])


@compiled
def select_slots(trees: Trees, span: Span, slots: Slots, selection: Bytes) -> None:
    """`select` for leaves that cover several positions: as many bits for every bin as positions."""
    nowhere = 1 << len(trees.words)
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        group = plant(trees, span.offset + start, count)
        hints = _spread_hints(slots, span.offset + start, count)
        for leaf in range(span.leaves):
            row = climb(trees, group, leaf, leaf - 1 if leaf else nowhere, span.leaves)
            packed = selection[leaf, start * slots.positions >> 3 :]
            pack_slots(slots.keys, row, hints, slots.positions, count, packed)


@compiled
def _spread_hints(slots: Slots, first: int, count: int) -> Blocks:
    row = new_rows(1, padded(slots.keys, count))[0]
    row[:] = 0
    for i in range(count):
        row[i, 0] = slots.hints[first + i]
    return row


@compiled
def leaves_of(trees: Trees, span: Span, chosen: npt.NDArray[np.uint32], leaves: Rows) -> None:
    """Write the blocks of chosen leaves, which ascend: shape (chosen, bins, 2)."""
    for start in range(span.start, span.stop, GROUP):
        count = min(GROUP, span.stop - start)
        group = plant(trees, span.offset + start, count)
        previous = 1 << len(trees.words)
        for place in range(len(chosen)):
            leaf = int(chosen[place])
            if place == 0:
                previous += leaf
            row = climb(trees, group, leaf, previous, span.leaves)
            copy_blocks(row, 0, leaves[place], start, count)
            previous = leaf
