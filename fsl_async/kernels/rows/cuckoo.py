"""Cuckoo placement: every selected row into one of its three bins, no two rows into one bin.

A row takes a free bin if it has one; otherwise it evicts the row of a random bin, which then looks for another bin in
the same way. A walk that takes too long ends in a breadth-first search for a chain of moves to a free bin. If there is
none, the row in hand stays out: by Berge's theorem no placement holds it together with all rows placed so far. So the
number of rows placed is the largest possible, whatever the seed.

The seed is the client's own, and nothing that leaves the client shows it: every bin gets a tree, and the tree of a free
bin looks like any other.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.lane import passes

Bins: TypeAlias = npt.NDArray[np.uint32]
Items: TypeAlias = npt.NDArray[np.int32]
Flat: TypeAlias = Any
"""One-dimensional integers: arrays where the walk is compiled, lists where it is not."""

SEGMENTS = 3
MOST_BINS = 2**31 // SEGMENTS
SEED_BYTES = 16
WALK_STEPS = 200
EMPTY = -1
UNSEEN = -1
ROOT = -2


@dataclass(frozen=True)
class Placement:
    """Which row is in which bin; private to the client.

    Args:
        rows_of_bin: int32[3·bins], the index of the row in each bin, -1 where a bin is free; segment after segment.
        unplaced: int32[n], the indices of the rows without a bin.
    """

    rows_of_bin: Items = field(repr=False)
    unplaced: Items = field(repr=False)


def place(bins_of: Bins, bins: int, seed: bytes) -> Placement:
    """Place as many rows as can be placed.

    Args:
        bins_of: uint32[k, 3], each row's bin within each of the three segments.
        bins: b, the bins of one segment.
        seed: at least 16 private bytes, by which the walk chooses.

    Raises:
        MisuseError: an array of another shape or dtype, a bin outside its segment, or a short seed.
    """
    if bins_of.dtype != np.uint32 or bins_of.ndim != 2 or bins_of.shape[1] != SEGMENTS:
        raise MisuseError(f"expected bins as uint32[k, 3], got {bins_of.dtype} of shape {bins_of.shape}")
    if not 1 <= bins <= MOST_BINS:
        raise MisuseError(f"expected 1 to {MOST_BINS} bins per segment, got {bins}")
    if len(bins_of) and int(bins_of.max()) >= bins:
        raise MisuseError(f"expected bins below {bins}, got {int(bins_of.max())}")
    if len(seed) < SEED_BYTES:
        raise MisuseError(f"expected a seed of at least {SEED_BYTES} bytes, got {len(seed)}")
    choices = np.ascontiguousarray(bins_of + np.arange(SEGMENTS, dtype=np.uint32) * np.uint32(bins))
    rows_of_bin = np.full(SEGMENTS * bins, EMPTY, dtype=np.int32)
    unplaced = np.empty(len(bins_of), dtype=np.int32)
    count = passes().place_all(choices, rows_of_bin, unplaced, _generator_state(seed))
    return Placement(rows_of_bin, unplaced[:count].copy())


def _generator_state(seed: bytes) -> int:
    """The walk's generator starts anywhere but at 0, from which it could not move."""
    digest = hashlib.blake2b(seed, digest_size=4, person=b"fsl.walk").digest()
    return int.from_bytes(digest, "little") or 1


def walk(choices: Flat, rows_of_bin: Flat, row: int, state: int) -> tuple[int, int]:
    """Walk from `row` for at most WALK_STEPS: the row left in hand, or EMPTY, and the generator's new state.

    The generator is xorshift32 (Marsaglia 2003), kept in a signed 64-bit integer.
    """
    came_from = -1
    for _ in range(WALK_STEPS):
        state ^= (state << 13) & 0xFFFFFFFF
        state ^= state >> 17
        state ^= (state << 5) & 0xFFFFFFFF
        own, first = row * SEGMENTS, (state * SEGMENTS) >> 32
        for turn in range(first, first + SEGMENTS):
            choice = choices[own + turn % SEGMENTS]
            if rows_of_bin[choice] == EMPTY:
                rows_of_bin[choice] = row
                return EMPTY, state
        choice = choices[own + first]
        if choice == came_from:
            choice = choices[own + (first + 1 + (state & 1)) % SEGMENTS]
        row, rows_of_bin[choice] = rows_of_bin[choice], row
        came_from = choice
    return row, state


def augment(choices: Flat, rows_of_bin: Flat, row: int, parent: Flat, queue: Flat) -> bool:
    """Place `row` by the shortest chain of moves to a free bin; False, and nothing moved, if there is none.

    `parent` says from which bin's row a bin was reached, ROOT for the choices of `row`; it is UNSEEN throughout
    before and after. `queue` is scratch. Both have an element for every bin.
    """
    head, length = 0, 0
    bin_, occupant, free = ROOT, row, EMPTY
    while free == EMPTY:
        for turn in range(SEGMENTS):
            choice = int(choices[occupant * SEGMENTS + turn])
            if parent[choice] == UNSEEN:
                parent[choice] = bin_
                queue[length] = choice
                length += 1
                if rows_of_bin[choice] == EMPTY:
                    free = choice
        if head == length:
            break
        bin_ = int(queue[head])
        occupant = int(rows_of_bin[bin_])
        head += 1
    placed = free != EMPTY
    if placed:
        while parent[free] != ROOT:
            rows_of_bin[free] = rows_of_bin[parent[free]]
            free = int(parent[free])
        rows_of_bin[free] = row
    for index in range(length):
        parent[queue[index]] = UNSEEN
    return placed


def place_rows(choices: Flat, rows_of_bin: Flat, unplaced: Flat, scratch: tuple[Flat, Flat], state: int) -> int:
    """Place all rows into bins that start EMPTY; how many are left over, and in `unplaced` which.

    Of the scratch, an element for every bin each, the first is UNSEEN throughout.
    """
    parent, queue = scratch
    left_over = 0
    for row in range(len(unplaced)):
        in_hand, state = walk(choices, rows_of_bin, row, state)
        if in_hand != EMPTY and not augment(choices, rows_of_bin, in_hand, parent, queue):
            unplaced[left_over] = in_hand
            left_over += 1
    return left_over
