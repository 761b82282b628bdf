"""Carry-less products of words by integer multiplications of words with holes.

Of bits that stand four places apart, at most eight to a word of 32, the sums of products do not reach each other: the
lowest bit of each sum is the one that is wanted. So a product of halves of words takes sixteen multiplications, and one
of words three of those (Karatsuba). Nothing branches or indexes by a word.

Source: T. Pornin, BearSSL, "Constant-Time Mul" (2018).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.plain.rings import HALF, LOW_HALF
from fsl_async.kernels.simd.carryless import PlainProducts
from fsl_async.kernels.simd.isa import Keys

Words = npt.NDArray[np.uint64]

HOLES = 4
EVERY_FOURTH = [np.uint64(sum(1 << bit for bit in range(place, 64, HOLES))) for place in range(HOLES)]


def multiplier_of(keys: Keys) -> PlainProducts:
    """The multiplier that goes with keys, of which this lane has one."""
    return PlainProducts(1)


def products_of_halves(blocks: Blocks) -> Blocks:
    """The product of every block's two words, not reduced, in the block's place: (…, 2)."""
    first, second = blocks[..., 0], blocks[..., 1]
    low, high = _product(first & LOW_HALF, second & LOW_HALF), _product(first >> HALF, second >> HALF)
    middle = _product((first ^ first >> HALF) & LOW_HALF, (second ^ second >> HALF) & LOW_HALF)
    middle ^= low ^ high
    return np.stack([low ^ middle << HALF, high ^ middle >> HALF], axis=-1)


def _product(first: Words, second: Words) -> Words:
    """The products of words below 2^32."""
    left, right = ([words & mask for mask in EVERY_FOURTH] for words in (first, second))
    total = np.zeros_like(first)
    for place, mask in enumerate(EVERY_FOURTH):
        sums = np.zeros_like(first)
        for part in range(HOLES):
            sums ^= left[part] * right[(place - part) % HOLES]
        sums &= mask
        total |= sums
    return total
