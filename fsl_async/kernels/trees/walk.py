"""Walking the trees: depth first over one position for a whole group of trees at once.

A group is up to 512 trees. Its working memory is one pair of rows per level and the group's correction words, a few
hundred kilobytes that stay in the second-level cache; leaves are visited from left to right and nothing is ever as
large as trees × leaves. Going from one leaf to the next expands only the nodes that the two do not share, and subtrees
that lie beyond the last leaf are never entered.

Rows are named by the place of their first block in a flat array: making an array for every row would cost as much
as the AES of a short one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba.extending import overload

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled, compiled_inline
from fsl_async.kernels.simd.vectors import lanes
from fsl_async.kernels.trees.arguments import GROUP, AskedTotals, Totals, Trees
from fsl_async.kernels.trees.passes import Group, grow, grow_left, take_corrections, take_row
from fsl_async.kernels.trees.totals import GroupTotals, NoGroupTotals, TotalsAtWork, is_type

Words = npt.NDArray[np.uint64]


@compiled
def padded(keys: Keys, count: int) -> int:
    """The least whole number of vectors that holds `count` blocks, in blocks."""
    return (count + lanes(keys) - 1) // lanes(keys) * lanes(keys)


@compiled
def new_row(count: int) -> Blocks:
    """A row of `count` zero blocks that begins on a cache line, so that vectors do not straddle two."""
    memory = np.zeros((count + 4, 2), dtype=np.uint64)
    skip = (-memory.ctypes.data // 16) % 4
    return memory[skip : skip + count]


@compiled
def take(keys: Keys, source: Blocks, first: int, count: int) -> Blocks:
    """A padded copy of some blocks of a row."""
    row = new_row(padded(keys, count))
    take_row(keys, source, first, row, count)
    return row


@compiled
def new_group(trees: Trees, count: int) -> Group:
    """Working memory for groups of at most `count` trees."""
    depth, width = len(trees.words), padded(trees.keys, min(GROUP, count))
    return Group(new_row(2 * (depth + 1) * width), new_row(depth * width), depth, width)


def new_totals(asked: AskedTotals, planes: int) -> TotalsAtWork:
    """Working memory for the totals of one group of trees, if they are asked for."""
    return GroupTotals(new_row(planes * GROUP), GROUP) if isinstance(asked, Totals) else NoGroupTotals()


@overload(new_totals, strict=False)
def _new_totals(asked: Any, planes: Any) -> Any:
    if is_type(asked, Totals):
        return lambda asked, planes: GroupTotals(new_row(planes * GROUP), GROUP)
    return lambda asked, planes: NoGroupTotals()


@compiled
def plant(trees: Trees, group: Group, first: int, count: int) -> None:
    """Put a group at the roots of `count` trees from tree `first` on."""
    take_row(trees.keys, trees.roots, first, group.nodes, count)
    for level in range(group.depth):
        take_corrections(trees.keys, trees.words[level], first, count, group, level)


@compiled_inline
def climb(trees: Trees, group: Group, leaf: int, previous: int, leaves: int) -> int:
    """Bring a group from leaf `previous` to a later leaf and return the place of that leaf's row.

    The first time, `previous` is `leaf + 2**depth`: a leaf that shares nothing.
    """
    level = group.depth
    differing = (leaf ^ previous) >> 1
    while differing > 0:
        level -= 1
        differing >>= 1
    while level < group.depth:
        side = (leaf >> (group.depth - level)) & 1
        below = group.depth - level - 1
        if ((leaf >> below) | 1) << below < leaves:
            grow(trees.keys, group, level, side)
        else:
            grow_left(trees.keys, group, level, side)
        level += 1
    return (2 * level + (leaf & 1)) * group.width
