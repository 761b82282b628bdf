"""The client's side of distributed point functions: trees, hints and tag corrections.

Source: design §6, §8; Guo, Yang, Wang, Zhang, Xie, Liu, Zhao 2022 for the tree (docs/adr/0026 says what differs);
de Castro, Polychroniadou 2022 for the tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.aes import encrypt_blocks, hash_blocks
from fsl_async.kernels.arrays import Blocks, blocks_in, read_only, require
from fsl_async.kernels.lane import passes_of
from fsl_async.kernels.simd.isa import Keys
from fsl_async.kernels.trees.arguments import Pair, Payload

RING_BITS = (32, 64, 128)
POSITIONS = (1, 2, 4)
GREATEST_DEPTH = 32
TILE = 4096
"""So many blocks, and what is made of them on the way, stay in the second-level cache."""

Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Alphas = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Tree:
    """The public part of some trees: both servers hold the same.

    Attributes:
        words: correction words; uint64 (depth, trees, 2).
    """

    words: Words = field(repr=False)

    @property
    def depth(self) -> int:
        """Levels below the root."""
        return len(self.words)

    @property
    def count(self) -> int:
        """How many trees these are."""
        return int(self.words.shape[1])

    def to_bytes(self) -> memoryview:
        """The trees as they travel; a copy only of what does not lie in memory like that already."""
        return np.ascontiguousarray(self.words).reshape(-1).view(np.uint8).data


def generate(keys: Keys, roots0: Blocks, roots1: Blocks, alphas: Alphas, depth: int) -> tuple[Tree, Blocks, Blocks]:
    """Generate one tree for each pair of roots.

    Args:
        keys: expansion keys.
        roots0: server 0's roots, lowest bits 0; uint64 (trees, 2).
        roots1: server 1's roots, lowest bits 1.
        alphas: the leaf at which each tree is nonzero, below 2^depth; uint32 (trees,).
        depth: levels of every tree, at most 32.

    Returns:
        The trees' public part and both servers' leaf blocks at alpha, each uint64 (trees, 2).

    Raises:
        MisuseError: for wrong types or shapes, roots with wrong lowest bits, or leaves outside the tree.
    """
    first, second = blocks_in("roots0", roots0).copy(), blocks_in("roots1", roots1).copy()
    require("roots1", second, np.uint64, first.shape)
    alphas = read_only("alphas", alphas, np.uint32, (len(first),))
    _check_generation(first, second, alphas, depth)
    words = np.empty((depth, len(first), 2), dtype=np.uint64)
    passes_of(keys).grow_pairs(keys, alphas, Pair(first, second), words)
    return Tree(words), first, second


def _check_generation(first: Blocks, second: Blocks, alphas: Alphas, depth: int) -> None:
    if not 0 <= depth <= GREATEST_DEPTH:
        raise MisuseError(f"a tree has 0 to {GREATEST_DEPTH} levels, not {depth}")
    lowest = np.bitwise_or.reduce(first[:, 0], initial=0), np.bitwise_and.reduce(second[:, 0], initial=1)
    if int(lowest[0]) & 1 or not int(lowest[1]) & 1:
        raise MisuseError("the lowest bit of a root is its server's number: 0 in roots0, 1 in roots1")
    if len(alphas) and int(alphas.max()) >= 2**depth:
        raise MisuseError(f"a tree of depth {depth} has {2**depth} leaves; alphas must lie below that")


def make_hints(keys: Keys, leaves0: Blocks, leaves1: Blocks, payload: Words, bits: int) -> Words:
    """The hints that make every tree carry its payload at alpha: (-1)^{t₁}·(β - C(s₀) + C(s₁)).

    Args:
        keys: conversion keys of the block and epoch; never used for another payload of the same trees.
        leaves0: server 0's leaf blocks at alpha; uint64 (trees, 2).
        leaves1: server 1's.
        payload: ring elements in planes; uint64 (planes, trees, 2).
        bits: bits of a ring element, 32, 64 or 128.

    Raises:
        MisuseError: for wrong types or shapes, or another ring.
    """
    if bits not in RING_BITS:
        raise MisuseError(f"a ring element has 32, 64 or 128 bits, not {bits}")
    first = blocks_in("leaves0", leaves0)
    second = read_only("leaves1", leaves1, np.uint64, first.shape)
    planes = read_only("payload", payload, np.uint64, (-1, len(first), 2))
    hints = np.empty(planes.shape, dtype=np.uint64)
    passes_of(keys).hint_planes(keys, Pair(first, second), Payload(planes, bits), hints)
    return hints


def make_select_hints(keys: Keys, leaves0: Blocks, leaves1: Blocks, slots: Bytes, positions: int) -> Bytes:
    """The hints that make a leaf of several positions select one of them: uint8 (trees,), below 2^positions.

    Args:
        keys: selection keys.
        leaves0: server 0's leaf blocks at alpha; uint64 (trees, 2).
        leaves1: server 1's.
        slots: the position to select under each tree's leaf; uint8 (trees,).
        positions: positions that a leaf covers, 1, 2 or 4.

    Raises:
        MisuseError: for wrong types or shapes, or slots outside the leaf.
    """
    require("slots", slots, np.uint8, (len(leaves0),))
    if positions not in POSITIONS or (slots >= positions).any():
        raise MisuseError(f"a leaf covers 1, 2 or 4 positions and slots lie below that; got {positions}")
    difference = hash_blocks(keys, leaves0) ^ hash_blocks(keys, leaves1)
    low = difference[:, 0].astype(np.uint8) & np.uint8(2**positions - 1)
    return low ^ (np.uint8(1) << slots)


def tag_corrections(keys: Keys, leaves0: Blocks, leaves1: Blocks, masks: Blocks) -> Blocks:
    """The corrections cs = T(n₀, α) ^ T(n₁, α), T(n, α) = π_κ(n ^ ρ_α) ^ n ^ ρ_α, of every tree: uint64 (trees, 2).

    Args:
        keys: tag keys κ.
        leaves0: server 0's leaf blocks at alpha; uint64 (trees, 2).
        leaves1: server 1's.
        masks: ρ at each tree's alpha; uint64 (trees, 2).

    Raises:
        MisuseError: for wrong types or shapes.
    """
    require("leaves1", leaves1, np.uint64, leaves0.shape)
    require("masks", masks, np.uint64, leaves0.shape)
    corrections = np.empty_like(leaves0)
    for start in range(0, len(leaves0), TILE):
        part = slice(start, start + TILE)
        first, second = leaves0[part] ^ masks[part], leaves1[part] ^ masks[part]
        corrections[part] = encrypt_blocks(keys, first) ^ first ^ encrypt_blocks(keys, second) ^ second
    return corrections
