"""A client's trees, a level of all of them at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.plain.aes import control_mask, hashed
from fsl_async.kernels.plain.rings import add_to, negated
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.trees.arguments import Pair, Payload

Words = npt.NDArray[np.uint64]
TREES = 4096
"""Trees that go down together."""


def grow_pairs(keys: Keys, alphas: npt.NDArray[np.uint32], pair: Pair, words: Words) -> None:
    """Replace roots by leaves and write the correction words: (depth, trees, 2).

    The word is H(n₀) ^ H(n₁), and where the path goes left, ^ n₀ ^ n₁: what leaves it becomes the same on both servers,
    and on it the two still differ as the roots do.
    """
    for start in range(0, len(alphas), TREES):
        part = slice(start, start + TREES)
        _grow(keys, alphas[part], pair.first[part], pair.second[part], words[:, part])


def _grow(keys: Keys, alphas: npt.NDArray[np.uint32], first: Blocks, second: Blocks, words: Words) -> None:
    both = np.stack([first, second])
    for level in range(len(words)):
        turns = alphas >> np.uint32(len(words) - 1 - level) & np.uint32(1)
        goes_right = np.negative(turns.astype(np.uint64))[:, np.newaxis]
        hashes = hashed(keys, both)
        word = np.bitwise_xor(hashes[0], hashes[1], out=words[level])
        word ^= (both[0] ^ both[1]) & ~goes_right
        hashes ^= (control_mask(both) & word) ^ (both & goes_right)
        both = hashes
    first[:], second[:] = both


def hint_planes(keys: Keys, pair: Pair, payload: Payload, hints: Words) -> None:
    """The hints (-1)^{t₁}·(β - C(s₀) + C(s₁)) of every plane and tree; a negation is a complement plus one."""
    bits = payload.ring_bits
    negative = control_mask(pair.second)
    unit = negated(bits, np.full((1, 2), 2**64 - 1, dtype=np.uint64))  # minus minus one: one in every element
    for plane, hint in enumerate(hints):
        tweak = np.array([plane << 1, 0], dtype=np.uint64)
        hint[:] = payload.planes[plane]
        add_to(bits, hint, negated(bits, hashed(keys, pair.first ^ tweak)))
        add_to(bits, hint, hashed(keys, pair.second ^ tweak))
        hint ^= negative
        add_to(bits, hint, unit & negative)
