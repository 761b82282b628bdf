"""Generation kernels: what a client computes for its trees, group by group.

Both servers' paths are walked side by side, one level at a time and only along the secret path. The secret leaf
index acts through masks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled
from fsl_async.kernels.simd.vectors import (
    RING_32,
    RING_64,
    RING_128,
    Ring,
    Vector,
    add,
    control_mask,
    hash_vector,
    lanes,
    load,
    repeat,
    store,
    store_part,
)
from fsl_async.kernels.trees.arguments import GROUP, Pair, Payload
from fsl_async.kernels.trees.passes import copy_blocks
from fsl_async.kernels.trees.walk import take

Words = npt.NDArray[np.uint64]
Alphas = npt.NDArray[np.uint32]


@compiled
def grow_pairs(keys: Keys, alphas: Alphas, pair: Pair, words: Words) -> None:
    """Replace roots by leaves and write the correction words: (depth, trees, 2)."""
    depth = len(words)
    for start in range(0, len(alphas), GROUP):
        count = min(GROUP, len(alphas) - start)
        rows = _take_pair(keys, pair, start, count)
        turns = np.zeros_like(rows.first)
        for level in range(depth):
            for i in range(count):
                turns[i, 0] = (alphas[start + i] >> (depth - 1 - level)) & 1
            _grow_level(keys, turns, rows, words[level], start, count)
        copy_blocks(rows.first, 0, pair.first, start, count)
        copy_blocks(rows.second, 0, pair.second, start, count)


@compiled
def _take_pair(keys: Keys, pair: Pair, start: int, count: int) -> Pair:
    return Pair(take(keys, pair.first, start, count), take(keys, pair.second, start, count))


@compiled
def _grow_level(keys: Keys, turns: Blocks, rows: Pair, words: Blocks, start: int, count: int) -> None:
    """One level down the paths, which go right where the block in `turns` is 1; words are written from `start` on.

    The word is H(n₀) ^ H(n₁), and where the path goes left, ^ n₀ ^ n₁: what leaves it becomes the same on both servers,
    and on it the two still differ as the roots do.
    """
    for i in range(0, count, lanes(keys)):
        first, second = load(keys, rows.first, i), load(keys, rows.second, i)
        goes_right = control_mask(load(keys, turns, i))
        first_hash, second_hash = hash_vector(keys, first), hash_vector(keys, second)
        difference: Vector = first ^ second
        word: Vector = first_hash ^ second_hash ^ difference ^ (goes_right & difference)
        if i + lanes(keys) <= count:
            store(words, start + i, word)
        else:
            store_part(words, start + i, word, count - i)
        store(rows.first, i, first_hash ^ (control_mask(first) & word) ^ (goes_right & first))
        store(rows.second, i, second_hash ^ (control_mask(second) & word) ^ (goes_right & second))


@compiled
def hint_planes(keys: Keys, pair: Pair, payload: Payload, hints: Words) -> None:
    """The hints (-1)^{t₁}·(β - C(s₀) + C(s₁)) of every plane and tree (design §6)."""
    for plane in range(len(payload.planes)):
        for start in range(0, len(pair.first), GROUP):
            count = min(GROUP, len(pair.first) - start)
            rows = _take_pair(keys, pair, start, count)
            row = take(keys, payload.planes[plane], start, count)
            if payload.ring_bits == 32:
                _hint_row(RING_32, keys, plane, rows, row)
            elif payload.ring_bits == 64:
                _hint_row(RING_64, keys, plane, rows, row)
            else:
                _hint_row(RING_128, keys, plane, rows, row)
            copy_blocks(row, 0, hints[plane], start, count)


@compiled
def _hint_row(ring: Ring, keys: Keys, plane: int, rows: Pair, payload: Blocks) -> None:
    """Replace payloads by hints; a negation is a complement plus one, and the sign a mask."""
    tweak, ones, unit = repeat(keys, plane << 1, 0), repeat(keys, -1, -1), repeat(keys, ring.low, ring.high)
    for i in range(0, len(payload), lanes(keys)):
        first, second = load(keys, rows.first, i), load(keys, rows.second, i)
        lost = add(ring, hash_vector(keys, first ^ tweak) ^ ones, unit)
        hint = add(ring, load(keys, payload, i), add(ring, lost, hash_vector(keys, second ^ tweak)))
        negative = control_mask(second)
        store(payload, i, add(ring, hint ^ negative, unit & negative))
