"""Vectors of blocks: the vocabulary in which the kernels are written.

A vector is a few blocks that a kernel handles at once, in registers. The functions here have compiled forms alone
(`lowering`); what kernels do with them, `plain` does to arrays. Vectors have `^` and `&`.

Rules: nothing branches on or indexes memory by what a block contains; a row is a C-contiguous uint64 array of shape
(n, 2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.simd.isa import Keys, isa_of

Vector = npt.NDArray[np.uint64]

WORD = 2**64 - 1


# Rows


def lanes(keys: Keys) -> int:
    """How many blocks a vector holds with these keys; a constant in compiled code."""
    return isa_of(type(keys)).lanes


def load(keys: Keys, row: Blocks, index: int) -> Vector:
    """The vector that begins at block `index` of a row."""
    raise NotImplementedError


def store(row: Blocks, index: int, vector: Vector) -> None:
    """Write a vector to a row, from block `index` on."""


def load_part(keys: Keys, row: Blocks, index: int, count: int) -> Vector:
    """`load` near a row's end: `count` blocks, at most a vector's, and zeros after them."""
    raise NotImplementedError


def store_part(row: Blocks, index: int, vector: Vector, count: int) -> None:
    """`store` near a row's end: the first `count` blocks, at most a vector's."""


def store_highs(row: Blocks, index: int, vector: Vector) -> None:
    """Write the high words of a vector's blocks, side by side, from block `index` on: half as many blocks."""


def prefetch(keys: Keys, row: Blocks, index: int) -> None:
    """Ask for the memory of a vector before it is needed.

    It has no effect on values, and the vector may lie outside the row.
    """


def repeat(keys: Keys, low: int, high: int) -> Vector:
    """A vector that repeats one block, given as two words; -1 is a word of ones."""
    raise NotImplementedError


def repeat_block(keys: Keys, row: Blocks, index: int) -> Vector:
    """A vector that repeats block `index` of a row."""
    raise NotImplementedError


# AES


def encrypt_vector(keys: Keys, vector: Vector) -> Vector:
    """AES-128 of every block."""
    raise NotImplementedError


def hash_vector(keys: Keys, vector: Vector) -> Vector:
    """H(x) = AES(σ(x)) ^ σ(x), σ(hi‖lo) = (hi ^ lo ‖ hi) (Guo, Katz, Wang, Yu 2019, section 7)."""
    raise NotImplementedError


def multiply_halves(multiplier: Multiplier, vector: Vector) -> Vector:
    """The carry-less product of every block's two words, not reduced."""
    raise NotImplementedError


# Bits


def control_mask(vector: Vector) -> Vector:
    """All ones where a block's control bit (its lowest) is 1, all zeros elsewhere."""
    raise NotImplementedError


def bits_at(vector: Vector, place: int) -> int:
    """Bit `place` (< 64) of every block, packed: block i's bit is bit i."""
    raise NotImplementedError


# Rings


class Ring32(NamedTuple):
    """Z_2^32, four elements to a block; the fields are a block of ones, one in every element."""

    low: int
    high: int


class Ring64(NamedTuple):
    """Z_2^64, two elements to a block; the fields are a block of ones."""

    low: int
    high: int


class Ring128(NamedTuple):
    """Z_2^128, one element to a block; the fields are a block of ones."""

    low: int
    high: int


Ring = Ring32 | Ring64 | Ring128
RING_32 = Ring32(2**32 + 1, 2**32 + 1)
RING_64 = Ring64(1, 1)
RING_128 = Ring128(1, 0)


def add(ring: Ring, left: Vector, right: Vector) -> Vector:
    """Elementwise sum in a ring."""
    raise NotImplementedError


def add_chosen(ring: Ring, left: Vector, right: Vector, chooser: Vector) -> Vector:
    """The sum left + t·right in a ring, t the control bit of the chooser's block."""
    raise NotImplementedError
