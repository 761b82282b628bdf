"""Rows in and out of the segments: permutations, placement, selection and folding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.kernels.rows import cuckoo
from fsl_async.kernels.rows.cuckoo import UNSEEN, Bins, Items
from fsl_async.kernels.rows.permutation import ROUNDS, Positions, Rounds
from fsl_async.kernels.rows.segments import Bytes, Elements, RowNumbers, Words

Numbers: TypeAlias = npt.NDArray[np.int64]

TILE = 2**14
TILE_BYTES = 2**18


def forward(rounds: Rounds, low_bits: int, rows: int, values: Positions, moved: Positions) -> None:
    """The network's rounds in their order, until every value is below `rows`."""
    _cycle(rounds, low_bits, rows, values, moved, range(ROUNDS))


def inverse(rounds: Rounds, low_bits: int, rows: int, values: Positions, moved: Positions) -> None:
    """The rounds the other way round."""
    _cycle(rounds, low_bits, rows, values, moved, range(ROUNDS - 1, -1, -1))


def _cycle(rounds: Rounds, low_bits: int, rows: int, values: Positions, moved: Positions, turns: range) -> None:
    wide = rounds.astype(np.uint32)
    shift, mask = np.uint32(low_bits), np.uint32((1 << low_bits) - 1)
    for start in range(0, len(values), TILE):
        tile = moved[start : start + TILE]
        tile[:] = values[start : start + TILE]
        walking = np.arange(len(tile))
        while len(walking):
            halves = [tile[walking] >> shift, tile[walking] & mask]
            for turn in turns:  # even rounds change the high half, and read the low one
                halves[turn % 2] ^= wide[turn].take(halves[1 - turn % 2])
            value = halves[0] << shift | halves[1]
            tile[walking] = value
            walking = walking[value >= rows]


def place_all(choices: Bins, rows_of_bin: Items, unplaced: Items, state: int) -> int:
    """`cuckoo.place_rows` on lists, which Python reads faster than arrays."""
    bins, left = rows_of_bin.tolist(), unplaced.tolist()
    scratch = [UNSEEN] * len(bins), [0] * len(bins)
    count = cuckoo.place_rows(choices.reshape(-1).tolist(), bins, left, scratch, state)
    rows_of_bin[:], unplaced[:] = bins, left
    return count


def select_places(places: Bytes, bits: Bytes, answers: Bytes, positions: int, skew: int) -> None:
    """Fill `answers` uint8[Q, n, row_bytes] from `places` uint8[Λ, n·p, row_bytes].

    The first place is bit `skew` of `bits` uint8[Q, Λ, ≥ n·p/8].
    """
    _, bins, row_bytes = answers.shape
    answers[:] = 0
    for start in range(0, bins, max(1, TILE_BYTES // (row_bytes * positions))):
        stop = min(bins, start + max(1, TILE_BYTES // (row_bytes * positions)))
        run = max(1, TILE_BYTES // (row_bytes * positions * (stop - start)))
        wanted = slice(skew + start * positions, skew + stop * positions)
        for leaf in range(0, len(places), run):
            rows = places[leaf : leaf + run, start * positions : stop * positions]
            for query, answer in zip(bits, answers, strict=True):
                chosen = np.unpackbits(query[leaf : leaf + run], axis=1, bitorder="little")[:, wanted]
                total = np.bitwise_xor.reduce(rows & np.negative(chosen)[..., np.newaxis], axis=0)
                by_bin = total.reshape(stop - start, positions, row_bytes)
                answer[start:stop] ^= np.bitwise_xor.reduce(by_bin, axis=1)


def add_words(elements: Elements, places: RowNumbers, positions: int, totals: Elements) -> None:
    """Add one segment's elements of 32 or 64 bits, [leaf, plane, bin, element of the plane], to some rows."""
    per_plane, width = elements.shape[3], totals.shape[1]
    for part, (leaf, first, bin_) in _found(elements.shape, places, positions, width):
        element = first + np.arange(width)
        totals[part] += elements[leaf, element // per_plane, bin_, element % per_plane]


def add_wide(words: Words, places: RowNumbers, positions: int, totals: Words) -> None:
    """Add one segment's elements of 128 bits, [leaf, plane, bin, word], to some rows."""
    width = totals.shape[1]
    for part, (leaf, first, bin_) in _found(words.shape, places, positions, width):
        added = words[leaf, first + np.arange(width), bin_]
        total = totals[part]
        total += added
        total[..., 1] += total[..., 0] < added[..., 0]


def _found(
    shape: tuple[int, ...], places: RowNumbers, positions: int, width: int
) -> Iterator[tuple[slice, tuple[Numbers, Numbers, Numbers]]]:
    """Some rows at a time, and of each its leaf, its slot's first element, and its bin: shape (rows, 1)."""
    step = max(1, TILE // width)
    for start in range(0, len(places), step):
        part = slice(start, start + step)
        column, slot = np.divmod(places[part, np.newaxis].astype(np.int64), positions)
        leaf, bin_ = np.divmod(column, shape[2])
        yield part, (leaf, slot * width, bin_)
