"""y = R·w for a matrix R of -1, 0 and 1 that a key determines, in any ring.

Eight columns at a time take 2·N bytes of AES in counter mode: bit k of byte i is e of row i and column 8·g + k; of byte
N + i it is e′; the entry is e - e′. All 256 sums of the eight columns' weights are made first; every row then adds one
of them and subtracts another. The keystream is made for a few columns at a time and never lies in memory whole, so that
millions of weights cost no more memory than a few.

What a table is read at are bits of R, which all who take part know; the weights are only what is in it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.aes import key_schedule
from fsl_async.kernels.arrays import Blocks, read_only
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.trees.passes import encrypt_row
from fsl_async.kernels.trees.walk import new_row

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

COLUMNS = 8
GROUPS = 16
"""Groups of columns for which the keystream is made at a time: a whole number of vectors, in the first-level cache."""


def project(key: bytes, nonce: int, rows: int, weights: Words) -> Words:
    """R·weights modulo 2^64, or modulo 2^128.

    Args:
        key: determines R together with the nonce; 16 bytes.
        nonce: below 2^64, as of `keystream`.
        rows: N, a multiple of 8.
        weights: uint64 (n,), or for 128 bits uint64 (n, 2) with the low word first.

    Returns:
        uint64 (N,) or (N, 2). Rings of fewer bits take the lower ones.

    Raises:
        MisuseError: for a wrong type or shape, or a nonce that is not a 64-bit number.
    """
    if not 0 <= nonce < 2**64:
        raise MisuseError(f"expected a 64-bit nonce, got {nonce}")
    if rows < 1 or rows % COLUMNS:
        raise MisuseError(f"the matrix has a multiple of {COLUMNS} rows, not {rows}")
    weights = read_only("weights", weights, np.uint64, (-1, 2) if weights.ndim == 2 else (-1,))
    sums = np.zeros((rows, *weights.shape[1:]), dtype=np.uint64)
    kernel = add_projections if weights.ndim == 1 else add_wide_projections
    kernel(key_schedule(key), np.uint64(nonce), weights, sums)
    return sums


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
