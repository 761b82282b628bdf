"""What the passes over trees take, whichever lane computes them: tuples of checked arrays.

The compiler specialises kernels by these types, so they stand apart from both lanes.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.simd.isa import Keys

GROUP = 512
"""Trees that compiled kernels walk side by side; the places of a union are ordered by it."""

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class Trees(NamedTuple):
    """One server's view of one client's trees, as kernels take it.

    Attributes:
        keys: expansion keys.
        roots: shape (trees, 2).
        words: corrections, shape (depth, trees, 2).
    """

    keys: Keys
    roots: Blocks
    words: Words


class Pair(NamedTuple):
    """Both servers' blocks of every tree: roots before `grow_pairs`, leaves at the secret index after it."""

    first: Blocks
    second: Blocks


class Payload(NamedTuple):
    """What the trees are to carry.

    Attributes:
        planes: ring elements, shape (planes, trees, 2).
        ring_bits: 32, 64 or 128.
    """

    planes: Words
    ring_bits: int


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
    hints: Words
    ring_bits: int


class TagCheck(NamedTuple):
    """What a server needs to check that trees are point functions (design §8).

    Attributes:
        tag: keys κ of the tags.
        multiplier: how to multiply.
        masks: ρ_x for every leaf, shape (leaves, 2).
        hash_keys: q_x for every leaf, which clients never learn; shape (leaves, 2).
        corrections: cs_j for every tree, shape (trees, 2).
    """

    tag: Keys
    multiplier: Multiplier
    masks: Blocks
    hash_keys: Blocks
    corrections: Blocks


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


class Totals(NamedTuple):
    """Totals are asked for.

    Attributes:
        sums: the sum over all leaves of every tree; uint64 (planes, trees, 2). Those of the trees in range are written.
    """

    sums: Words

    def __repr__(self) -> str:
        return "Totals(...)"


class NoTotals(NamedTuple):
    """Nobody asked for totals."""


AskedTotals: TypeAlias = Totals | NoTotals
NO_TOTALS = NoTotals()
