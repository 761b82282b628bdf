"""The kernels of projections: all sums of eight weights come first; every row adds one and subtracts another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.bounds.projection import COLUMNS
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.trees.passes import encrypt_row
from fsl_async.kernels.trees.walk import new_row

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

GROUPS = 16
"""Groups of columns for which the keystream is made at a time: a whole number of vectors, in the first-level cache."""


@compiled
def add_projections(keys: Keys, nonce: np.uint64, weights: Words, sums: Words) -> None:
    """Add R·weights to the sums, modulo 2^64."""
    rows, count = len(sums), len(weights)
    stream = new_row(GROUPS * rows // COLUMNS)
    table = np.zeros(1 << COLUMNS, dtype=np.uint64)
    for start in range(0, count, COLUMNS * GROUPS):
        bits = fill_stream(keys, nonce, stream, start // COLUMNS * rows // COLUMNS)
        for group in range(min(GROUPS, (count - start + COLUMNS - 1) // COLUMNS)):
            first = start + COLUMNS * group
            for column in range(COLUMNS):
                weight = weights[first + column] if first + column < count else np.uint64(0)
                for place in range(1 << column):
                    table[(1 << column) + place] = table[place] + weight
            place = 2 * rows * group
            for row in range(rows):
                sums[row] += table[bits[place + row]] - table[bits[place + rows + row]]


@compiled
def add_wide_projections(keys: Keys, nonce: np.uint64, weights: Words, sums: Words) -> None:
    """`add_projections` modulo 2^128: weights and sums of two words."""
    rows, count = len(sums), len(weights)
    stream = new_row(GROUPS * rows // COLUMNS)
    table = np.zeros((1 << COLUMNS, 2), dtype=np.uint64)
    for start in range(0, count, COLUMNS * GROUPS):
        bits = fill_stream(keys, nonce, stream, start // COLUMNS * rows // COLUMNS)
        for group in range(min(GROUPS, (count - start + COLUMNS - 1) // COLUMNS)):
            first = start + COLUMNS * group
            for column in range(COLUMNS):
                low, high = np.uint64(0), np.uint64(0)
                if first + column < count:
                    low, high = weights[first + column, 0], weights[first + column, 1]
                for place in range(1 << column):
                    total = table[place, 0] + low
                    table[(1 << column) + place, 0] = total
                    table[(1 << column) + place, 1] = table[place, 1] + high + np.uint64(total < low)
            place = 2 * rows * group
            for row in range(rows):
                plus, minus = bits[place + row], bits[place + rows + row]
                added = sums[row, 0] + table[plus, 0]
                carry = np.uint64(added < table[plus, 0])
                borrow = np.uint64(added < table[minus, 0])
                sums[row, 0] = added - table[minus, 0]
                sums[row, 1] += table[plus, 1] - table[minus, 1] + carry - borrow


@compiled
def fill_stream(keys: Keys, nonce: np.uint64, stream: Blocks, first: int) -> Bytes:
    """Fill a row with the keystream from block `first` on, and return its bytes."""
    for place in range(len(stream)):
        stream[place, 0] = first + place
        stream[place, 1] = nonce
    encrypt_row(keys, stream)
    return stream.reshape(-1).view(np.uint8)
