"""The server's side of distributed point functions: shares, selection bits, proofs and leaves of a client's trees.

Every function works on a range of a segment's bins and touches only their slice of its output: calls for ranges that
do not overlap may run in threads side by side. Shares are added with a positive sign; server 1 negates the
finished sum. Source: design §6, §7, §8, §12.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.arrays import Blocks, read_only, writable
from fsl_async.kernels.lane import passes_of
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.trees.arguments import (
    NO_TOTALS,
    AskedTotals,
    Conversion,
    Slots,
    Span,
    TagCheck,
    Totals,
    Trees,
)
from fsl_async.kernels.trees.generation import POSITIONS, RING_BITS, Tree

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


OnRange: TypeAlias = Callable[[int, int, int], None]
"""Does something with the bins of one segment: takes the segment, the first bin, and one past the last bin."""


class Extent(NamedTuple):
    """What there is to make ranges of.

    Attributes:
        segments: of the forest.
        bins: of a segment.
        leaves: of every tree.
    """

    segments: int
    bins: int
    leaves: int

    def span(self, segment: int, start: int, stop: int) -> Span:
        """Some bins of one segment, as kernels take them.

        Raises:
            MisuseError: there are no such bins.
        """
        if not (0 <= segment < self.segments and 0 <= start <= stop <= self.bins):
            raise MisuseError(
                f"segment {segment}, bins {start} to {stop}: there are {self.segments} segments of {self.bins} bins"
            )
        return Span(segment * self.bins, start, stop, self.leaves)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One server's view of one client's trees and hints.

    Attributes:
        keys: expansion keys.
        roots: this server's roots; uint64 (trees, 2).
        tree: the correction words.
        convert: conversion keys of the block and epoch.
        hints: uint64 (planes, trees, 2).
        element_bits: bits of a ring element, 32, 64 or 128.
    """

    keys: Keys
    roots: Blocks = field(repr=False)
    tree: Tree = field(repr=False)
    convert: Keys
    hints: Words = field(repr=False)
    element_bits: int


@dataclass(frozen=True, eq=False)
class Verification:
    """What a server checks one client's trees with (design §8).

    Attributes:
        tag: keys κ of the tags.
        masks: ρ_x for every leaf; uint64 (leaves, 2).
        hash_keys: q_x for every leaf, tossed by both servers and never shown to a client; uint64 (leaves, 2).
        corrections: the client's tag corrections; uint64 (trees, 2).
    """

    tag: Keys
    masks: Blocks = field(repr=False)
    hash_keys: Blocks = field(repr=False)
    corrections: Blocks = field(repr=False)


@dataclass(frozen=True, eq=False)
class Selection:
    """One server's view of the trees of one client's query.

    Attributes:
        keys: expansion keys.
        roots: this server's roots; uint64 (trees, 2).
        tree: the correction words.
        select: selection keys; not used where a leaf covers one position.
        select_hints: uint8 (trees,), below 2^positions; not used where a leaf covers one position.
        positions: positions that a leaf covers, 1, 2 or 4.
    """

    keys: Keys
    roots: Blocks = field(repr=False)
    tree: Tree = field(repr=False)
    select: Keys
    select_hints: Bytes = field(repr=False)
    positions: int


def adder(evaluation: Evaluation, accumulator: Words, totals: AskedTotals = NO_TOTALS) -> OnRange:
    """What adds the share of every position under some bins to an accumulator; all arguments are checked here, once.

    Args:
        evaluation: the trees and hints.
        accumulator: uint64 (segments, leaves, planes, bins, 2), changed in place.
        totals: where the sums over all leaves of every tree in range go, or `NO_TOTALS`.

    Raises:
        MisuseError: for wrong types or shapes; what is returned raises it for bins outside the segment.
    """
    extent = _accumulator_extent(evaluation, accumulator)
    trees, conversion, asked = trees_of(evaluation), conversion_of(evaluation), totals_of(evaluation, totals)
    passes = passes_of(evaluation.keys, evaluation.convert)

    def add(segment: int, start: int, stop: int) -> None:
        span = extent.span(segment, start, stop)
        passes.add(trees, span, conversion, accumulator[segment], asked)

    return add


def verifying_adder(
    evaluation: Evaluation,
    verification: Verification,
    accumulator: Words,
    proofs: Blocks,
    totals: AskedTotals = NO_TOTALS,
) -> OnRange:
    """`adder`, with the proofs of the same trees in the same walk.

    Args:
        evaluation: the trees and hints.
        verification: how to check them.
        accumulator: uint64 (segments, leaves, planes, bins, 2), changed in place.
        proofs: uint64 (trees, 2); those of the trees in range are written.
        totals: where the sums over all leaves of every tree in range go, or `NO_TOTALS`.

    Raises:
        MisuseError: for wrong types or shapes; what is returned raises it for bins outside the segment.
    """
    extent = _accumulator_extent(evaluation, accumulator)
    passes = passes_of(evaluation.keys, evaluation.convert, verification.tag)
    check = _tag_check(verification, passes.multiplier_of(verification.tag), extent.leaves, evaluation.tree.count)
    proofs = writable("proofs", proofs, np.uint64, (evaluation.tree.count, 2))
    trees, conversion, asked = trees_of(evaluation), conversion_of(evaluation), totals_of(evaluation, totals)

    def add(segment: int, start: int, stop: int) -> None:
        span = extent.span(segment, start, stop)
        passes.add_verified(trees, span, conversion, accumulator[segment], check, proofs, asked)

    return add


def evaluate_select(selection: Selection, bits: Bytes, segment: int, start: int, stop: int) -> None:
    """Write this server's share of the selection bits of some bins.

    Args:
        selection: the trees.
        bits: uint8 (segments, leaves, ⌈bins·positions / 8⌉), bit bin·positions + slot, lowest first.
        segment: the segment of the bins.
        start: first bin, at a byte's first bit: a multiple of 8 / positions.
        stop: one past the last bin; also at a byte's first bit unless it is the last bin of all.

    Raises:
        MisuseError: for wrong types or shapes, or bins outside the segment or not at byte boundaries.
    """
    if selection.positions not in POSITIONS:
        raise MisuseError(f"a leaf covers 1, 2 or 4 positions, not {selection.positions}")
    bins = selection.tree.count // max(1, len(bits))
    writable("bits", bits, np.uint8, (-1, -1, -(-bins * selection.positions // 8)))
    span = _extent(selection.tree, bits).span(segment, start, stop)
    if start * selection.positions % 8 or (stop * selection.positions % 8 and stop != bins):
        raise MisuseError(f"bins {start} to {stop}, {selection.positions} bits each, do not begin and end with a byte")
    passes = passes_of(selection.keys, selection.select)
    if selection.positions == 1:
        passes.select(trees_of(selection), span, bits[segment])
    else:
        passes.select_slots(trees_of(selection), span, _slots(selection), bits[segment])


def evaluate_leaves(
    trees: Evaluation | Selection,
    chosen: npt.NDArray[np.uint32],
    leaves: Words,
    segment: int,
    start: int,
    stop: int,
) -> None:
    """Write the blocks of chosen leaves, to be converted in later epochs.

    Args:
        trees: whose leaves.
        chosen: which leaves, ascending; uint32 (chosen,).
        leaves: uint64 (segments, chosen, bins, 2).
        segment: the segment of the bins.
        start: first bin.
        stop: one past the last bin.

    Raises:
        MisuseError: for wrong types or shapes, bins outside the segment, or leaves that descend or lie outside.
    """
    chosen = read_only("chosen", chosen, np.uint32, (-1,))
    if (chosen[1:] < chosen[:-1]).any() or (chosen >= 2**trees.tree.depth).any():
        raise MisuseError(f"chosen leaves must ascend and lie below {2**trees.tree.depth}")
    bins = trees.tree.count // max(1, len(leaves))
    writable("leaves", leaves, np.uint64, (-1, len(chosen), bins, 2))
    span = _extent(trees.tree, leaves).span(segment, start, stop)._replace(leaves=2**trees.tree.depth)
    passes_of(trees.keys).leaves_of(trees_of(trees), span, chosen, leaves[segment])


def add_leaves(
    evaluation: Evaluation,
    leaves: Words,
    accumulator: Words,
    segment: int,
    start: int,
    stop: int,
    totals: AskedTotals = NO_TOTALS,
) -> None:
    """As `adder`, from leaves that `evaluate_leaves` wrote, all of them: no tree is walked.

    Args:
        evaluation: the hints and conversion keys of this epoch.
        leaves: uint64 (segments, leaves, bins, 2).
        accumulator: uint64 (segments, leaves, planes, bins, 2), changed in place.
        segment: the segment of the bins.
        start: first bin.
        stop: one past the last bin.
        totals: where the sums over all leaves of every tree in range go, or `NO_TOTALS`.

    Raises:
        MisuseError: for wrong types or shapes, or bins outside the segment.
    """
    span = _accumulator_extent(evaluation, accumulator).span(segment, start, stop)
    segments, bins = accumulator.shape[0], accumulator.shape[3]
    leaves = read_only("leaves", leaves, np.uint64, (segments, span.leaves, bins, 2))
    asked = totals_of(evaluation, totals)
    passes = passes_of(evaluation.convert)
    passes.add_cached(span, conversion_of(evaluation), leaves[segment], accumulator[segment], asked)


def trees_of(view: Evaluation | Selection) -> Trees:
    """The trees as kernels take them, checked."""
    tree = view.tree
    words = read_only("words", tree.words, np.uint64, (-1, -1, 2))
    roots = read_only("roots", view.roots, np.uint64, (tree.count, 2))
    return Trees(view.keys, roots, words)


def conversion_of(evaluation: Evaluation) -> Conversion:
    """The conversion as kernels take it, checked."""
    if evaluation.element_bits not in RING_BITS:
        raise MisuseError(f"a ring element has 32, 64 or 128 bits, not {evaluation.element_bits}")
    hints = read_only("hints", evaluation.hints, np.uint64, (-1, evaluation.tree.count, 2))
    return Conversion(evaluation.convert, hints, evaluation.element_bits)


def totals_of(evaluation: Evaluation, totals: AskedTotals) -> AskedTotals:
    """Where totals go, checked."""
    if isinstance(totals, Totals):
        writable("totals", totals.sums, np.uint64, (len(evaluation.hints), evaluation.tree.count, 2))
    return totals


def _tag_check(verification: Verification, multiplier: Multiplier, leaves: int, trees: int) -> TagCheck:
    return TagCheck(
        verification.tag,
        multiplier,
        read_only("masks", verification.masks, np.uint64, (leaves, 2)),
        read_only("hash_keys", verification.hash_keys, np.uint64, (leaves, 2)),
        read_only("corrections", verification.corrections, np.uint64, (trees, 2)),
    )


def _slots(selection: Selection) -> Slots:
    hints = read_only("select_hints", selection.select_hints, np.uint8, (selection.tree.count,))
    return Slots(selection.select, hints, selection.positions)


def _accumulator_extent(evaluation: Evaluation, accumulator: Words) -> Extent:
    bins = evaluation.tree.count // max(1, len(accumulator))
    planes = len(evaluation.hints)
    writable("accumulator", accumulator, np.uint64, (-1, -1, planes, bins, 2))
    return _extent(evaluation.tree, accumulator)


def _extent(tree: Tree, output: npt.NDArray[np.generic]) -> Extent:
    """The extent of an output of shape (segments, leaves, ...)."""
    segments, leaves = output.shape[:2]
    bins = tree.count // max(1, segments)
    if bins * segments != tree.count or not 1 <= leaves <= 2**tree.depth:
        raise MisuseError(
            f"{tree.count} trees of at most {2**tree.depth} leaves do not fill {segments} segments of {leaves} leaves"
        )
    return Extent(segments, bins, leaves)
