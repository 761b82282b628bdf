"""One pass over a row: what happens to one node, or one leaf, of a whole group of trees.

A row is the same node of many trees side by side, padded to whole vectors. Every pass reads rows and writes one row,
so that a node costs one load, one store and its AES. Control bits act through masks, never through branches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.simd.carryless import Multiplier
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.simd.lowering import compiled, compiled_inline
from fsl_async.kernels.simd.vectors import (
    RING_32,
    RING_64,
    RING_128,
    Ring,
    Vector,
    add,
    add_chosen,
    bits_at,
    control_mask,
    encrypt_vector,
    hash_vector,
    lanes,
    load,
    load_part,
    multiply_halves,
    prefetch,
    repeat,
    repeat_block,
    store,
    store_part,
)
from fsl_async.kernels.trees.arguments import Conversion, Slots, TagCheck
from fsl_async.kernels.trees.totals import TotalsAtWork, tally

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]


class Group(NamedTuple):
    """The working memory of one group of trees (see `walk`); level by level, left row before right row.

    Attributes:
        nodes: the two children last expanded on each level, shape (2·(depth + 1)·width, 2).
        corrections: shape (depth·width, 2).
        depth: levels below the roots.
        width: blocks of a row, padded to whole vectors.
    """

    nodes: Blocks
    corrections: Blocks
    depth: int
    width: int


class Target(NamedTuple):
    """Where a group's shares go.

    Attributes:
        cells: an accumulator of one segment, flat: shape (leaves·planes·bins, 2).
        bins: bins of the segment.
        start: the group's first bin.
        size: its bins.
        hints: all trees' hints, flat: shape (planes·trees, 2).
        trees: trees in all.
        tree: the first bin's tree.
    """

    cells: Blocks
    bins: int
    start: int
    size: int
    hints: Blocks
    trees: int
    tree: int


@compiled_inline
def grow(keys: Keys, group: Group, level: int, side: int) -> None:
    """Both children of a row of nodes: H(n) ^ t(n)·correction, and that ^ n (docs/adr/0026)."""
    nodes, width = group.nodes, group.width
    parents, lefts, rights = (2 * level + side) * width, (2 * level + 2) * width, (2 * level + 3) * width
    for i in range(0, width, lanes(keys)):
        node = load(keys, nodes, parents + i)
        child = left_child(keys, node, load(keys, group.corrections, level * width + i))
        store(nodes, lefts + i, child)
        store(nodes, rights + i, child ^ node)


@compiled_inline
def left_child(keys: Keys, node: Vector, correction: Vector) -> Vector:
    """H(n) ^ t(n)·correction."""
    return hash_vector(keys, node) ^ (control_mask(node) & correction)


@compiled_inline
def grow_left(keys: Keys, group: Group, level: int, side: int) -> None:
    """The left children alone, where all leaves to the right lie outside the tree."""
    nodes, width = group.nodes, group.width
    parents, lefts = (2 * level + side) * width, (2 * level + 2) * width
    for i in range(0, width, lanes(keys)):
        correction = load(keys, group.corrections, level * width + i)
        store(nodes, lefts + i, left_child(keys, load(keys, nodes, parents + i), correction))


@compiled
def take_corrections(keys: Keys, words: Blocks, first: int, count: int, group: Group, level: int) -> None:
    """Copy one level's corrections of `count` trees from tree `first` on; meanwhile fetch those that come next."""
    step, start = lanes(keys), level * group.width
    last = (count - 1) // step * step
    for i in range(0, last, step):
        prefetch(keys, words, first + count + i)
        store(group.corrections, start + i, load(keys, words, first + i))
    store(group.corrections, start + last, load_part(keys, words, first + last, count - last))


@compiled_inline
def add_leaf(conversion: Conversion, leaves: Blocks, row: int, leaf: int, target: Target, totals: TotalsAtWork) -> None:
    """Add every plane of a row of leaves' shares, C(n) + t(n)·hint, to its place in the accumulator and to totals."""
    if conversion.ring_bits == 32:
        _add_planes(RING_32, conversion, leaves, row, leaf, target, totals)
    elif conversion.ring_bits == 64:
        _add_planes(RING_64, conversion, leaves, row, leaf, target, totals)
    else:
        _add_planes(RING_128, conversion, leaves, row, leaf, target, totals)


@compiled
def _add_planes(
    ring: Ring, conversion: Conversion, leaves: Blocks, row: int, leaf: int, target: Target, totals: TotalsAtWork
) -> None:
    """`add_leaf` in one ring; meanwhile the cells that come next are fetched from memory.

    A vector is hashed before the one in front of it is added: additions that wait for their AES would hold up the
    AES behind them.
    """
    keys, cells, hints = conversion.keys, target.cells, target.hints
    step, planes = lanes(keys), len(conversion.hints)
    last = (target.size - 1) // step * step
    rest = target.size - last
    for plane in range(planes):
        tweak = repeat(keys, plane << 1, 0)
        hint = plane * target.trees + target.tree
        place = (leaf * planes + plane) * target.bins + target.start
        prefetch(keys, cells, place + target.bins)
        image = hash_vector(keys, load(keys, leaves, row) ^ tweak)
        for i in range(0, last, step):
            prefetch(keys, cells, place + target.bins + i + step)
            following = hash_vector(keys, load(keys, leaves, row + i + step) ^ tweak)
            shares = add_chosen(ring, image, load(keys, hints, hint + i), load(keys, leaves, row + i))
            store(cells, place + i, add(ring, load(keys, cells, place + i), shares))
            tally(keys, ring, totals, plane, i, shares)
            image = following
        shares = add_chosen(ring, image, load_part(keys, hints, hint + last, rest), load(keys, leaves, row + last))
        store_part(cells, place + last, add(ring, load_part(keys, cells, place + last, rest), shares), rest)
        tally(keys, ring, totals, plane, last, shares)


@compiled_inline
def prove_leaf(check: TagCheck, leaf: int, leaves: Blocks, row: int, corrections: Blocks, proofs: Blocks) -> None:
    """Add the product of both halves of v ^ q_x to every tree's proof, v = T(n, x) ^ t(n)·correction (design §8)."""
    mask = repeat_block(check.tag, check.masks, leaf)
    key = repeat_block(check.tag, check.hash_keys, leaf)
    for i in range(0, len(proofs), lanes(check.tag)):
        node = load(check.tag, leaves, row + i)
        masked = node ^ mask
        tag = encrypt_vector(check.tag, masked) ^ masked
        corrected = tag ^ (control_mask(node) & load(check.tag, corrections, i))
        store(proofs, i, load(check.tag, proofs, i) ^ multiply_halves(check.multiplier, corrected ^ key))


@compiled_inline
def pack_controls(keys: Keys, leaves: Blocks, row: int, count: int, packed: Bytes, first: int) -> None:
    """The control bits of `count` leaves, eight to a byte, from byte `first` on."""
    whole = count - count % lanes(keys)
    for i in range(0, whole, lanes(keys)):
        controls = bits_at(load(keys, leaves, row + i), 0)
        for k in range(lanes(keys) >> 3):
            packed[first + (i >> 3) + k] = (controls >> (8 * k)) & 255
    if whole < count:
        write_bits(bits_at(load(keys, leaves, row + whole), 0), count - whole, packed, first + (whole >> 3))


@compiled_inline
def pack_slots(slots: Slots, leaves: Blocks, row: int, hints: Blocks, count: int, packed: Bytes, first: int) -> None:
    """The low `positions` bits of H(n) ^ t(n)·hint of `count` leaves, side by side, from byte `first` on."""
    keys, positions = slots.keys, slots.positions
    for i in range(0, count, lanes(keys)):
        leaf = load(keys, leaves, row + i)
        marks = hash_vector(keys, leaf) ^ (control_mask(leaf) & load(keys, hints, i))
        word = 0
        for slot in range(positions):
            word |= _space(bits_at(marks, slot), positions) << slot
        write_bits(word, positions * min(lanes(keys), count - i), packed, first + (positions * i >> 3))


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
def copy_blocks(source: Blocks, first: int, target: Blocks, start: int, count: int) -> None:
    """Copy `count` blocks."""
    for i in range(count):
        target[start + i, 0] = source[first + i, 0]
        target[start + i, 1] = source[first + i, 1]


@compiled
def take_row(keys: Keys, source: Blocks, first: int, target: Blocks, count: int) -> None:
    """Copy `count` blocks to the start of a padded row, by whole vectors."""
    step = lanes(keys)
    last = (count - 1) // step * step
    for i in range(0, last, step):
        store(target, i, load(keys, source, first + i))
    store(target, last, load_part(keys, source, first + last, count - last))


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


@compiled
def multiply_row(keys: Keys, multiplier: Multiplier, row: Blocks) -> None:
    """The product of both words of every block of a row, in place."""
    for i in range(0, len(row), lanes(keys)):
        store(row, i, multiply_halves(multiplier, load(keys, row, i)))
