"""Sums in Z_2^32, Z_2^64 and Z_2^128 on blocks of 16 bytes, of shape (…, 2)."""

from __future__ import annotations

import numpy as np

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.plain.aes import ONE

HALF = np.uint64(32)
LOW_HALF = np.uint64(2**32 - 1)


def add_to(bits: int, cells: Blocks, shares: Blocks) -> None:
    """Add shares to cells, in place."""
    if bits == 32:
        view = cells.view(np.uint32)
        view += shares.view(np.uint32)
        return
    cells += shares
    if bits == 128:
        cells[..., 1] += cells[..., 0] < shares[..., 0]


def negated(bits: int, blocks: Blocks) -> Blocks:
    """The additive inverse of every element."""
    if bits == 32:
        return np.negative(blocks.view(np.uint32)).view(np.uint64)
    if bits == 64:
        return np.negative(blocks)
    negative = ~blocks
    negative[..., 0] += ONE
    negative[..., 1] += negative[..., 0] == 0
    return negative


def summed(bits: int, blocks: Blocks) -> Blocks:
    """The sum over the first axis, of fewer than 2^32 blocks."""
    if bits == 32:
        narrow: Blocks = np.add.reduce(blocks.view(np.uint32), axis=0, dtype=np.uint32).view(np.uint64)
        return narrow
    total: Blocks = np.add.reduce(blocks, axis=0)
    if bits == 128:
        low, high = blocks[..., 0] & LOW_HALF, blocks[..., 0] >> HALF
        total[..., 1] += np.add.reduce(high, axis=0) + (np.add.reduce(low, axis=0) >> HALF) >> HALF
    return total
