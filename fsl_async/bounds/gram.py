"""All inner products of some rows of whole numbers, exactly, by matrix products of floats.

A float64 holds whole numbers up to 2^53. Where the squares of all numbers sum up to no more, every inner product and
every partial sum of one is within it (Cauchy and Schwarz), in whatever order it is added. Larger numbers are cut into
limbs first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

EXACT = 2**53
"""The largest number up to which a float64 holds all whole numbers."""

LIMB_BITS = 20


def gram(rows: list[list[int]]) -> list[list[int]]:
    """The inner product of every row with every row; rows are equally long."""
    squares = sum(number * number for row in rows for number in row)
    if squares <= EXACT:
        numbers = np.array(rows, dtype=np.float64)
        inner: list[list[int]] = _whole(numbers @ numbers.T).tolist()
        return inner
    limbs = _limbs(rows)
    total = np.zeros((len(rows), len(rows)), dtype=object)
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs):
            total += _whole(left @ right.T).astype(object) << LIMB_BITS * (i + j)
    products: list[list[int]] = total.tolist()
    return products


def _limbs(rows: list[list[int]]) -> list[npt.NDArray[np.float64]]:
    """The rows' numbers in signed limbs: Σ limb·2^(20·i), each limb within ±2^19."""
    if len(rows[0]) << 2 * LIMB_BITS - 2 > EXACT:
        raise ValueError(f"rows of {len(rows[0])} numbers could exceed what a float holds exactly")
    rest = np.array(rows, dtype=object)
    half, full = 1 << LIMB_BITS - 1, 1 << LIMB_BITS
    limbs = []
    while rest.any():
        limb = (rest + half) % full - half
        limbs.append(limb.astype(np.float64))
        rest = (rest - limb) >> LIMB_BITS
    return limbs


def _whole(products: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return products.astype(np.int64)
