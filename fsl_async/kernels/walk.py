"""Walking the trees: depth first over one position for a whole group of trees at once.

A group is up to 256 trees. Its working memory is one pair of rows per level and the group's correction words, some 100 KB
that stay in the second-level cache; leaves are visited from left to right and nothing is ever as large as
trees × leaves. Going from one leaf to the next expands only the nodes that the two do not share, and subtrees
that lie beyond the last leaf are never entered.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.isa import Keys
from fsl_async.kernels.passes import copy_blocks, correct_right, grow
from fsl_async.kernels.vectors import Blocks, compiled, lanes

__all__ = ["GROUP", "Group", "Trees", "climb", "new_rows", "padded", "plant", "take"]

GROUP = 256

Rows = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class Trees(NamedTuple):
    """One server's view of one client's trees, as kernels take it.

    Attributes:
        left: keys of left children.
        right: keys of right children.
        roots: shape (trees, 2).
        words: left corrections, shape (depth, trees, 2).
        bits: control bits of the right corrections, eight trees to a byte, shape (depth, ⌈trees / 8⌉).
    """

    left: Keys
    right: Keys
    roots: Blocks
    words: Rows
    bits: Bytes


class Group(NamedTuple):
    """The working memory of one group.

    Attributes:
        nodes: the two children last expanded on each level, shape (depth + 1, 2, padded trees, 2).
        corrections: those of left and right children on each level, shape (depth, 2, padded trees, 2).
    """

    nodes: Rows
    corrections: Rows


@compiled
def padded(keys: Keys, count: int) -> int:
    """The least whole number of vectors that holds `count` blocks, in blocks."""
    return (count + lanes(keys) - 1) // lanes(keys) * lanes(keys)


@compiled
def new_rows(count: int, width: int) -> Rows:
    """Uninitialised rows that begin on a cache line, so that vectors do not straddle two: (count, width, 2)."""
    memory = np.empty((count * width + 4, 2), dtype=np.uint64)
    skip = (-memory.ctypes.data // 16) % 4
    return memory[skip : skip + count * width].reshape((count, width, 2))


@compiled
def take(keys: Keys, source: Blocks, first: int, count: int) -> Blocks:
    """A padded copy of some blocks of a row."""
    row = new_rows(1, padded(keys, count))[0]
    row[count:] = 0
    copy_blocks(source, first, row, 0, count)
    return row


@compiled
def plant(trees: Trees, first: int, count: int) -> Group:
    """A group of `count` trees from tree `first` on, at its roots."""
    depth, width = trees.words.shape[0], padded(trees.left, count)
    nodes = new_rows(2 * (depth + 1), width).reshape((depth + 1, 2, width, 2))
    corrections = new_rows(2 * depth, width).reshape((depth, 2, width, 2))
    nodes[0, 0, count:] = 0
    copy_blocks(trees.roots, first, nodes[0, 0], 0, count)
    for level in range(depth):
        left, right = corrections[level, 0], corrections[level, 1]
        left[count:] = 0
        copy_blocks(trees.words[level], first, left, 0, count)
        correct_right(trees.left, left, trees.bits[level], first, right)
    return Group(nodes, corrections)


@compiled
def climb(trees: Trees, group: Group, leaf: int, previous: int, leaves: int) -> Blocks:
    """Bring a group from leaf `previous` to a later leaf and return that leaf's row.

    The first time, `previous` is `leaf + 2**depth`: a leaf that shares nothing.
    """
    depth = len(group.corrections)
    level = depth
    differing = (leaf ^ previous) >> 1
    while differing > 0:
        level -= 1
        differing >>= 1
    while level < depth:
        parents = group.nodes[level, (leaf >> (depth - level)) & 1]
        level += 1
        below = depth - level
        grow(trees.left, parents, group.corrections[level - 1, 0], group.nodes[level, 0])
        if ((leaf >> below) | 1) << below < leaves:
            grow(trees.right, parents, group.corrections[level - 1, 1], group.nodes[level, 1])
    return group.nodes[depth, leaf & 1]
