"""Sums over every tree's leaves, made in the same walk that adds the leaves' shares to an accumulator.

What a server lacks to bound a client's update is its share of each tree's payload: the sum of the shares of all leaves
(bounded updates, docs/security.md). `Totals` says where such sums go and `NoTotals` that nobody asked for them. The
type is the choice: a kernel is compiled once for each, and without totals nothing of them is in its code.

A group's totals stay in the first-level cache while its trees are walked; the sums are written once, at the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.simd.vectors import Ring, Vector, add, load, store
from fsl_async.kernels.trees.arguments import AskedTotals, Totals

Words = npt.NDArray[np.uint64]


class GroupTotals(NamedTuple):
    """The totals of the group of trees at work.

    Attributes:
        row: plane by plane: shape (planes·width, 2).
        width: blocks of one plane.
    """

    row: Blocks
    width: int


class NoGroupTotals(NamedTuple):
    """Nobody asked for totals."""


TotalsAtWork: TypeAlias = GroupTotals | NoGroupTotals


def clear_totals(work: TotalsAtWork) -> None:
    """Start a group at zero."""


def tally(keys: Keys, ring: Ring, work: TotalsAtWork, plane: int, tree: int, shares: Vector) -> None:
    """Add a vector of shares of one plane to the totals of the group's trees from `tree` on."""


def write_totals(asked: AskedTotals, work: TotalsAtWork, first: int, count: int) -> None:
    """Write the totals of a group of `count` trees from tree `first` on."""


def gather_totals(
    work: TotalsAtWork, gathered: TotalsAtWork, bins: npt.NDArray[np.uint32], first: int, count: int, start: int
) -> None:
    """Bring the totals of `count` chosen bins side by side, before shares of these bins are added.

    Args:
        work: the totals of a group that begins at bin `start`.
        gathered: where they go: place i of every plane.
        bins: chosen bins; those from place `first` on are meant.
        first: the first of them.
        count: how many.
        start: the group's first bin.
    """


def scatter_totals(
    gathered: TotalsAtWork, work: TotalsAtWork, bins: npt.NDArray[np.uint32], first: int, count: int, start: int
) -> None:
    """Bring them back to where `gather_totals` took them."""


@compiled
def _copy_block(source: Blocks, here: int, target: Blocks, there: int) -> None:
    # Word by word: a row assigned at once brings the text of an error of shapes, which takes seconds to compile.
    target[there, 0], target[there, 1] = source[here, 0], source[here, 1]


@compiled
def _copy_planes(work: GroupTotals, sums: Words, first: int, count: int) -> None:
    for plane in range(len(sums)):
        for tree in range(count):
            _copy_block(work.row, plane * work.width + tree, sums[plane], first + tree)


@compiled
def _gather(work: GroupTotals, gathered: GroupTotals, bins: npt.NDArray[np.uint32], start: int) -> None:
    for plane in range(0, len(work.row), work.width):
        for place in range(len(bins)):
            _copy_block(work.row, plane + int(bins[place]) - start, gathered.row, plane + place)


@compiled
def _scatter(gathered: GroupTotals, work: GroupTotals, bins: npt.NDArray[np.uint32], start: int) -> None:
    for plane in range(0, len(work.row), work.width):
        for place in range(len(bins)):
            _copy_block(gathered.row, plane + place, work.row, plane + int(bins[place]) - start)


# The compiled forms: one for each type, of which that of `NoTotals` is empty. They are parts of their kernels.

_PART: Any = {"forceinline": True}


def is_type(kind: Any, named: type) -> bool:
    """Whether a type of the compiler is that of a named tuple."""
    return getattr(kind, "instance_class", None) is named


@overload(clear_totals, jit_options=_PART, strict=False)
def _clear_totals(work: Any) -> Any:
    if not is_type(work, GroupTotals):
        return lambda work: None

    def clear(work: GroupTotals) -> None:
        work.row[:] = np.uint64(0)

    return clear


@overload(tally, jit_options=_PART, strict=False)
def _tally(keys: Any, ring: Any, work: Any, plane: Any, tree: Any, shares: Any) -> Any:
    if not is_type(work, GroupTotals):
        return lambda keys, ring, work, plane, tree, shares: None

    def add_up(keys: Keys, ring: Ring, work: GroupTotals, plane: int, tree: int, shares: Vector) -> None:
        index = plane * work.width + tree
        store(work.row, index, add(ring, load(keys, work.row, index), shares))

    return add_up


@overload(write_totals, jit_options=_PART, strict=False)
def _write_totals(asked: Any, work: Any, first: Any, count: Any) -> Any:
    if not is_type(asked, Totals):
        return lambda asked, work, first, count: None
    return lambda asked, work, first, count: _copy_planes(work, asked.sums, first, count)


@overload(gather_totals, jit_options=_PART, strict=False)
def _gather_totals(work: Any, gathered: Any, bins: Any, first: Any, count: Any, start: Any) -> Any:
    if not is_type(work, GroupTotals):
        return lambda work, gathered, bins, first, count, start: None
    return lambda work, gathered, bins, first, count, start: _gather(work, gathered, bins[first : first + count], start)


@overload(scatter_totals, jit_options=_PART, strict=False)
def _scatter_totals(gathered: Any, work: Any, bins: Any, first: Any, count: Any, start: Any) -> Any:
    if not is_type(work, GroupTotals):
        return lambda gathered, work, bins, first, count, start: None
    return lambda gathered, work, bins, first, count, start: _scatter(
        gathered, work, bins[first : first + count], start
    )
