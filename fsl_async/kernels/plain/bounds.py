"""What proofs of bounds compute with, as products of matrices.

Numbers are cut into limbs so short that doubles hold their sums of products exactly, and doubles have NumPy's fastest
products of matrices. Every word costs the same whatever it is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.bounds.projection import COLUMNS
from fsl_async.kernels.plain.aes import encrypt_row
from fsl_async.kernels.plain.rings import add_to
from fsl_async.kernels.simd.isa import Keys

Words = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]

LIMB_BITS = 16
RUN = 2**16
"""Terms of a sum: 2^16 of 2^32 at most are below 2^53, beyond which doubles skip numbers."""
GROUPS = 64
"""Groups of columns whose part of a projection's matrix is made at a time."""


def sums_of_products(coefficients: Sequence[int], columns: Words) -> list[int]:
    """Σ_c coefficients[c]·columns[c, j] for every j; uint64 (rows, columns, words), the low word first."""
    size = max(1, -(-max(coefficients, default=0).bit_length() // LIMB_BITS))
    packed = b"".join(coefficient.to_bytes(size * LIMB_BITS // 8, "little") for coefficient in coefficients)
    factors = np.frombuffer(packed, dtype="<u2").reshape(len(columns), size).astype(np.float64)
    rows, count, words = columns.shape
    limbs = np.ascontiguousarray(columns).view("<u2").reshape(rows, 4 * count * words)
    sums = np.zeros((size, limbs.shape[1]), dtype=np.uint64)
    for start in range(0, rows, RUN):
        part = slice(start, start + RUN)
        sums += (factors[part].T @ limbs[part].astype(np.float64)).astype(np.uint64)
    by_column = sums.reshape(size, count, 4 * words).transpose(1, 0, 2).tolist()
    return [
        sum(limb << LIMB_BITS * (i + j) for i, row in enumerate(column) for j, limb in enumerate(row))
        for column in by_column
    ]


def add_projections(keys: Keys, nonce: np.uint64, weights: Words, sums: Words) -> None:
    """Add R·weights to the sums, modulo 2^64."""
    sums += _projected(keys, nonce, weights[:, np.newaxis], len(sums))[:, 0]


def add_wide_projections(keys: Keys, nonce: np.uint64, weights: Words, sums: Words) -> None:
    """`add_projections` modulo 2^128: weights and sums of two words."""
    add_to(128, sums, _projected(keys, nonce, weights, len(sums)))


def _projected(keys: Keys, nonce: np.uint64, weights: Words, rows: int) -> Words:
    """R·weights of numbers of some words, the low word first: (rows, words)."""
    limbs = np.ascontiguousarray(weights).view("<u2")
    sums = np.zeros((rows, limbs.shape[1]), dtype=np.int64)
    for start in range(0, len(limbs), COLUMNS * GROUPS):
        run = limbs[start : start + COLUMNS * GROUPS].astype(np.float64)
        matrix = _matrix(keys, nonce, rows, start // COLUMNS, -(-len(run) // COLUMNS))
        sums += (matrix[:, : len(run)] @ run).astype(np.int64)
    found, carry = np.empty((rows, limbs.shape[1]), dtype="<u2"), np.zeros(rows, dtype=np.int64)
    for place in range(limbs.shape[1]):
        carry += sums[:, place]
        found[:, place] = carry & (2**LIMB_BITS - 1)
        carry >>= LIMB_BITS  # of a negative number, too, the rest is not negative
    return found.view(np.uint64)


def _matrix(keys: Keys, nonce: np.uint64, rows: int, first: int, groups: int) -> Doubles:
    """R's columns of some groups: bit k of byte i is e of row i and column 8·g + k, of byte N + i it is e′."""
    stream = np.empty((groups * rows // COLUMNS, 2), dtype=np.uint64)
    stream[:, 0] = np.arange(len(stream), dtype=np.uint64) + np.uint64(first * rows // COLUMNS)
    stream[:, 1] = nonce
    encrypt_row(keys, stream)
    signs = np.unpackbits(stream.reshape(-1).view(np.uint8).reshape(groups, 2, rows, 1), axis=3, bitorder="little")
    matrix = signs[:, 0].astype(np.float64) - signs[:, 1]
    return matrix.transpose(1, 0, 2).reshape(rows, groups * COLUMNS)
