"""One pass over a row: what happens to one node, or one leaf, of a whole group of trees.

A row is the same node of many trees side by side, padded to whole vectors. Every pass reads rows and writes one row,
so that a node costs one load, one store and its AES. Control bits act through masks, never through branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.isa import Keys
from fsl_async.kernels.vectors import (
    Blocks,
    Vector,
    add_32,
    add_64,
    add_128,
    bits_at,
    compiled,
    control_mask,
    encrypt_vector,
    hash_vector,
    lanes,
    load,
    repeat,
    repeat_block,
    spread_bits,
    store,
)

__all__ = [
    "Add",
    "TagCheck",
    "add_leaf",
    "copy_blocks",
    "correct_right",
    "encrypt_row",
    "grow",
    "hash_row",
    "pack_controls",
    "pack_slots",
    "prove_leaf",
    "sum_32",
    "sum_64",
    "sum_128",
    "write_bits",
]

Bytes = npt.NDArray[np.uint8]
Add = Callable[[Vector, Vector], Vector]


class TagCheck(NamedTuple):
    """What a server needs to check that trees are point functions (design, section 8).

    Attributes:
        tag: keys κ of the tags.
        digest: keys q of the digest, which clients never learn.
        masks: ρ_x for every leaf, shape (leaves, 2).
        digest_masks: ρ'_x for every leaf, shape (leaves, 2).
        corrections: cs_j for every tree, shape (trees, 2).
    """

    tag: Keys
    digest: Keys
    masks: Blocks
    digest_masks: Blocks
    corrections: Blocks


@compiled
def grow(keys: Keys, parents: Blocks, corrections: Blocks, children: Blocks) -> None:
    """One child of every parent: H(n) ^ t(n)·correction (design, section 5 and 6)."""
    for i in range(0, len(parents), lanes(keys)):
        node = load(keys, parents, i)
        correction = control_mask(node) & load(keys, corrections, i)
        store(children, i, hash_vector(keys, node) ^ correction)


@compiled
def sum_32(left: Vector, right: Vector) -> Vector:
    return add_32(left, right)


@compiled
def sum_64(left: Vector, right: Vector) -> Vector:
    return add_64(left, right)


@compiled
def sum_128(left: Vector, right: Vector) -> Vector:
    return add_128(left, right)


@compiled
def _add_leaf(add: Add, keys: Keys, leaves: Blocks, hints: Blocks, plane: int, target: Blocks) -> None:
    tweak = repeat(keys, plane << 1, 0)
    for i in range(0, len(leaves), lanes(keys)):
        leaf = load(keys, leaves, i)
        hint = control_mask(leaf) & load(keys, hints, i)
        share = add(hash_vector(keys, leaf ^ tweak), hint)
        store(target, i, add(load(keys, target, i), share))


@compiled
def _add_whole_row(keys: Keys, leaves: Blocks, hints: Blocks, ring_bits: int, plane: int, target: Blocks) -> None:
    if ring_bits == 32:
        _add_leaf(sum_32, keys, leaves, hints, plane, target)
    elif ring_bits == 64:
        _add_leaf(sum_64, keys, leaves, hints, plane, target)
    else:
        _add_leaf(sum_128, keys, leaves, hints, plane, target)


@compiled
def add_leaf(keys: Keys, leaves: Blocks, hints: Blocks, ring_bits: int, plane: int, target: Blocks) -> None:
    """Add one plane of every leaf's share, C(n) + t(n)·hint, to the target, which need not be padded."""
    if len(target) == len(leaves):
        _add_whole_row(keys, leaves, hints, ring_bits, plane, target)
    else:
        padded = np.zeros_like(leaves)
        copy_blocks(target, 0, padded, 0, len(target))
        _add_whole_row(keys, leaves, hints, ring_bits, plane, padded)
        copy_blocks(padded, 0, target, 0, len(target))


@compiled
def prove_leaf(check: TagCheck, leaf: int, leaves: Blocks, corrections: Blocks, proofs: Blocks) -> None:
    """Fold π_q(v ^ ρ'_x) into every tree's proof, v = T(n, x) ^ t(n)·correction (design, section 8)."""
    mask = repeat_block(check.tag, check.masks, leaf)
    digest_mask = repeat_block(check.digest, check.digest_masks, leaf)
    for i in range(0, len(leaves), lanes(check.tag)):
        node = load(check.tag, leaves, i)
        masked = node ^ mask
        tag = encrypt_vector(check.tag, masked) ^ masked
        corrected = tag ^ (control_mask(node) & load(check.tag, corrections, i))
        folded = load(check.tag, proofs, i) ^ encrypt_vector(check.digest, corrected ^ digest_mask)
        store(proofs, i, folded)


@compiled
def pack_controls(keys: Keys, leaves: Blocks, count: int, packed: Bytes) -> None:
    """The control bits of the first `count` leaves, eight to a byte."""
    for i in range(0, count, lanes(keys)):
        write_bits(bits_at(load(keys, leaves, i), 0), min(lanes(keys), count - i), packed, i >> 3)


@compiled
def pack_slots(keys: Keys, leaves: Blocks, hints: Blocks, positions: int, count: int, packed: Bytes) -> None:
    """The low `positions` bits of H(n) ^ t(n)·hint of the first `count` leaves, side by side."""
    for i in range(0, count, lanes(keys)):
        leaf = load(keys, leaves, i)
        slots = hash_vector(keys, leaf) ^ (control_mask(leaf) & load(keys, hints, i))
        word = 0
        for slot in range(positions):
            word |= _space(bits_at(slots, slot), positions) << slot
        write_bits(word, positions * min(lanes(keys), count - i), packed, positions * i >> 3)


@compiled
def _space(bits: int, stride: int) -> int:
    """Bit i moves to place stride·i; up to 16 bits, strides 2 and 4."""
    for _ in range(stride >> 1):
        bits = (bits | bits << 16) & 0x0000FFFF0000FFFF
        bits = (bits | bits << 8) & 0x00FF00FF00FF00FF
        bits = (bits | bits << 4) & 0x0F0F0F0F0F0F0F0F
        bits = (bits | bits << 2) & 0x3333333333333333
        bits = (bits | bits << 1) & 0x5555555555555555
    return bits


@compiled
def write_bits(word: int, count: int, packed: Bytes, first: int) -> None:
    """Write `count` bits to bytes from `first` on; spare bits of the last byte are 0."""
    for k in range((count + 7) >> 3):
        byte = (word >> (8 * k)) & 255
        packed[first + k] = byte & ((1 << min(8, count - 8 * k)) - 1)


@compiled
def correct_right(keys: Keys, left: Blocks, packed: Bytes, first: int, right: Blocks) -> None:
    """The right children's corrections: the left ones' with their lowest bits taken from `packed`."""
    seeds = repeat(keys, -2, -1)
    for i in range(0, len(left), lanes(keys)):
        controls = spread_bits(keys, _read_bits(packed, first + i, lanes(keys)))
        store(right, i, (load(keys, left, i) & seeds) ^ controls)


@compiled
def _read_bits(packed: Bytes, first: int, count: int) -> int:
    word = 0
    start = first >> 3
    for k in range(start, min((first + count + 7) >> 3, len(packed))):
        word |= int(packed[k]) << (8 * (k - start))
    return word >> (first & 7)


@compiled
def copy_blocks(source: Blocks, first: int, target: Blocks, start: int, count: int) -> None:
    """Copy `count` blocks."""
    for i in range(count):
        target[start + i, 0] = source[first + i, 0]
        target[start + i, 1] = source[first + i, 1]


@compiled
def encrypt_row(keys: Keys, row: Blocks) -> None:
    """AES-128 of every block of a row, in place."""
    for i in range(0, len(row), lanes(keys)):
        store(row, i, encrypt_vector(keys, load(keys, row, i)))


@compiled
def hash_row(keys: Keys, row: Blocks) -> None:
    """H of every block of a row, in place."""
    for i in range(0, len(row), lanes(keys)):
        store(row, i, hash_vector(keys, load(keys, row, i)))
