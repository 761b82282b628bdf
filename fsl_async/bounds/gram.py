"""All inner products of some rows of whole numbers, exactly, by products of arrays of 64-bit integers.

Where the squares of all numbers sum up to less than 2^63, so does every inner product (Cauchy and Schwarz). Larger
numbers are cut into limbs first. Integers and not floats, though those are faster: their library takes all cores for
half a millisecond's work, and waits for them where other parties need them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LIMB_BITS = 24

Limbs = npt.NDArray[np.int64]


def gram(rows: list[list[int]]) -> list[list[int]]:
    """The inner product of every row with every row; rows are equally long."""
    if sum(number * number for row in rows for number in row) < 2**63:
        numbers = np.array(rows, dtype=np.int64)
        inner: list[list[int]] = _products(numbers, numbers).tolist()
        return inner
    limbs = _limbs(rows)
    total = np.zeros((len(rows), len(rows)), dtype=object)
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs):
            total += _products(left, right).astype(object) << LIMB_BITS * (i + j)
    products: list[list[int]] = total.tolist()
    return products


def _limbs(rows: list[list[int]]) -> list[Limbs]:
    """The rows' numbers in signed limbs: Σ limb·2^(24·i), each limb within ±2^23."""
    if len(rows[0]) << 2 * LIMB_BITS - 2 >= 2**63:
        raise ValueError(f"inner products of {len(rows[0])} limbs could exceed 64 bits")
    rest = np.array(rows, dtype=object)
    half, full = 1 << LIMB_BITS - 1, 1 << LIMB_BITS
    limbs = []
    while rest.any():
        limb = (rest + half) % full - half
        limbs.append(limb.astype(np.int64))
        rest = (rest - limb) >> LIMB_BITS
    return limbs


def _products(left: Limbs, right: Limbs) -> Limbs:
    products: Limbs = np.einsum("ij,kj->ik", left, right)
    return products
