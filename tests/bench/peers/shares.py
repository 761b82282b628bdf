"""Whether two servers' shares of many trees add up to point functions.

At its point each tree has the value, and 0 at every other leaf. A share with a leaf that is 0 is refused as well: where
one server has the function itself and the other one zeros, they add up, and nothing is shared.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

Group: TypeAlias = Literal["xor", "add"]
"""How two shares of a leaf are put together: bit by bit, or as integers modulo 2^128."""

Shares: TypeAlias = npt.NDArray[np.uint64]
"""(trees, leaves, 2): 16 bytes for a leaf, the lower half first."""

Points: TypeAlias = npt.NDArray[np.uint32]

LEAF_BYTES = 16
MULTIPLIER, OFFSET = 2_654_435_761, 97


def points_of(trees: int, depth: int) -> Points:
    """The point of each tree: spread over all leaves, and the same in every program that is told the two numbers."""
    numbers = np.arange(trees, dtype=np.uint32)
    return (numbers * np.uint32(MULTIPLIER) + np.uint32(OFFSET)) >> np.uint32(32 - depth)


def what_is_wrong(first: Shares, second: Shares, group: Group, value: Shares) -> str:
    """What is wrong with two servers' shares; empty if nothing is.

    Args:
        first: what server 0 has.
        second: what server 1 has.
        group: how they add up.
        value: (2,), what every tree has at its point.
    """
    if not value.any():
        return "its value is 0, which no check can see"
    for server, share in enumerate((first, second)):
        if not share.any(axis=2).all():
            return f"server {server} has leaves that are 0 by themselves, so nothing is shared"
    trees, leaves, _ = first.shape
    whole = _together(first, second, group)
    each, points = np.arange(trees), points_of(trees, (leaves - 1).bit_length())
    missing = int((whole[each, points] != value).any(axis=1).sum())
    whole[each, points] = 0
    beside = int(whole.any(axis=2).sum())
    if missing or beside:
        return (
            f"its shares do not add up to point functions: {missing:,} of {trees:,} trees have another value at their "
            f"point, and {beside:,} leaves elsewhere are not 0"
        )
    return ""


def _together(first: Shares, second: Shares, group: Group) -> Shares:
    if group == "xor":
        return first ^ second
    whole = first + second
    whole[..., 1] += whole[..., 0] < first[..., 0]  # the carry of the lower half
    return whole
