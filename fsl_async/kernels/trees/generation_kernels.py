"""Generation kernels: what a client computes for its trees, group by group.

Both servers' paths are walked side by side, one level at a time and only along the secret path. The secret leaf
index acts through masks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled, compiled_inline
from fsl_async.kernels.simd.vectors import (
    RING_32,
    RING_64,
    RING_128,
    Ring,
    Vector,
    add,
    bits_at,
    control_mask,
    hash_vector,
    lanes,
    load,
    repeat,
    store,
)
from fsl_async.kernels.trees.passes import copy_blocks, write_bits
from fsl_async.kernels.trees.walk import GROUP, take

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Alphas = npt.NDArray[np.uint32]


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


@compiled
def grow_pairs(left: Keys, right: Keys, alphas: Alphas, pair: Pair, words: Words, bits: Bytes) -> None:
    """Replace roots by leaves and write the correction words: (depth, trees, 2) and (depth, ⌈trees / 8⌉)."""
    depth = len(words)
    for start in range(0, len(alphas), GROUP):
        count = min(GROUP, len(alphas) - start)
        rows = _take_pair(left, pair, start, count)
        path = np.zeros_like(rows.first)
        for level in range(depth):
            for i in range(count):
                path[i, 0] = (alphas[start + i] >> (depth - 1 - level)) & 1
            controls = _grow_level(left, right, path, rows)
            copy_blocks(path, 0, words[level], start, count)
            for i in range(0, count, lanes(left)):
                word = bits_at(load(left, controls, i), 0)
                write_bits(word, min(lanes(left), count - i), bits[level], (start + i) >> 3)
        copy_blocks(rows.first, 0, pair.first, start, count)
        copy_blocks(rows.second, 0, pair.second, start, count)


@compiled
def _take_pair(keys: Keys, pair: Pair, start: int, count: int) -> Pair:
    return Pair(take(keys, pair.first, start, count), take(keys, pair.second, start, count))


@compiled
def _grow_level(left: Keys, right: Keys, path: Blocks, rows: Pair) -> Blocks:
    """One level down the path, whose bits (lowest of each block) make room for the correction words.

    Returns the corrections of the right children: the same seed words, their own control bits.
    """
    corrections = np.empty_like(path)
    one, seeds = repeat(left, 1, 0), repeat(left, -2, -1)
    for i in range(0, len(path), lanes(left)):
        step, first, second = load(left, path, i), load(left, rows.first, i), load(left, rows.second, i)
        goes_right = control_mask(step)
        first_left, first_right = hash_vector(left, first), hash_vector(right, first)
        second_left, second_right = hash_vector(left, second), hash_vector(right, second)
        left_difference, right_difference = first_left ^ second_left, first_right ^ second_right
        seed = _choose(goes_right, right_difference, left_difference) & seeds
        left_word = seed ^ ((left_difference ^ step ^ one) & one)
        right_word = seed ^ ((right_difference ^ step) & one)
        word = _choose(goes_right, left_word, right_word)
        store(path, i, left_word)
        store(corrections, i, right_word)
        store(rows.first, i, _choose(goes_right, first_left, first_right) ^ (control_mask(first) & word))
        store(rows.second, i, _choose(goes_right, second_left, second_right) ^ (control_mask(second) & word))
    return corrections


@compiled_inline
def _choose(mask: Vector, where_zero: Vector, where_one: Vector) -> Vector:
    return where_zero ^ (mask & (where_zero ^ where_one))


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
