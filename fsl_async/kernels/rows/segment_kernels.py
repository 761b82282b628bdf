"""The kernels of selection and of folding.

Selection reads every row once for all waiting queries. It works on a *tile*, a few leaves of a few bins: a row is
loaded a *lane* of up to 64 bytes at a time, and each query of a group XORs it, masked by its bit, into an
accumulator that stays in a register for all leaves of the tile. Nothing branches or indexes memory by a bit.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from fsl_async.kernels.rows.lanes import GROUP, LANES, accumulate, deliver, fetch, spread
from fsl_async.kernels.rows.segments import Bytes, Elements, RowNumbers, Words

Masks: TypeAlias = npt.NDArray[np.uint32]

TILE_LEAVES = 16
TILE_BYTES = 65536
FOLD_CELLS = 256
"""Rows that are on their way into the first-level cache have at most so many cells."""


def scratch(queries: int, row_bytes: int, positions: int) -> tuple[Bytes, Masks]:
    """One tile's accumulators uint8[groups, bins, lanes, group, lane] and masks uint32[leaves, places, group]."""
    group = 1 if queries == 1 else GROUP
    groups = -(-queries // group)
    lane = max(lane for lane in LANES if lane <= row_bytes)
    lanes = -(-row_bytes // lane)
    bins = max(8, TILE_BYTES // (group * lanes * lane) // 8 * 8)
    tile = np.empty((groups, bins, lanes, group, lane), dtype=np.uint8)
    return tile, np.empty((TILE_LEAVES, bins * positions + 8, group), dtype=np.uint32)


def grouped_bits(wanted: Bytes, tile: Bytes) -> Bytes:
    """Bits uint8[Q, Λ, n] as uint8[groups, group, Λ, n]: the queries that fill up the last group select nothing."""
    groups, _, _, group, _ = tile.shape
    queries, leaves, _ = wanted.shape
    grouped = np.zeros((groups * group, leaves, wanted.shape[2]), dtype=np.uint8)
    grouped[:queries] = wanted
    return grouped.reshape(groups, group, leaves, -1)


def select_places(places: Bytes, bits: Bytes, answers: Bytes, positions: int, skew: int) -> None:
    """Fill `answers` uint8[Q, n, row_bytes] from `places` uint8[Λ, n·p, row_bytes].

    The first place is bit `skew` of `bits` uint8[Q, Λ, ≥ n·p/8].
    """
    tile, masks = scratch(len(bits), answers.shape[2], positions)
    select_tiles(places, grouped_bits(bits, tile), answers, positions, skew, tile, masks)


@njit(cache=True, nogil=True)
def select_tiles(
    places: Bytes, bits: Bytes, answers: Bytes, positions: int, skew: int, tile: Bytes, masks: Masks
) -> None:
    """Fill `answers` uint8[Q, n, row_bytes], tile by tile.

    `places` is uint8[Λ, n·p, row_bytes]; its first place is bit `skew` of `bits` uint8[groups, group, Λ, ≥ n·p/8].
    """
    groups, tile_bins, _, size, _ = tile.shape
    for low in range(0, answers.shape[1], tile_bins):
        count = min(tile_bins, answers.shape[1] - low)
        first, last = low * positions, (low + count) * positions
        tile[:] = 0
        for leaf in range(0, len(places), TILE_LEAVES):
            rows = places[leaf : leaf + TILE_LEAVES, first:last]
            for group in range(groups):
                spread(bits[group, :, leaf : leaf + TILE_LEAVES, first >> 3 : (last + skew + 7) >> 3], masks)
                accumulate(tile[group, :count], rows, masks[:, skew:], positions)
        for group in range(groups):
            deliver(tile[group, :count], answers[group * size : (group + 1) * size, low : low + count])


@njit(cache=True, nogil=True)
def add_words(elements: Elements, places: RowNumbers, positions: int, totals: Elements) -> None:
    """Add one segment's elements of 32 or 64 bits, [leaf, plane, bin, element of the plane], to some rows."""
    _, planes, bins, per_plane = elements.shape
    shift = per_plane >> 1  # 4 elements or 2: by 2 bits or 1
    flat, width = elements.reshape(-1), totals.shape[1]
    step = max(1, FOLD_CELLS // planes)
    found = np.empty((2, 2, step), np.int64)
    _find(elements.shape, places[:step], positions, width, found[0], found[0])
    for start in range(0, len(places), step):
        now, soon = found[start // step & 1], found[1 - (start // step & 1)]
        _find(elements.shape, places[start + step : start + 2 * step], positions, width, soon, now)
        (cells, firsts), (coming, coming_firsts) = now, soon
        for column in range(width):
            for row in range(min(step, len(places) - start)):
                fetch(flat, int(coming[row] + (coming_firsts[row] + column >> shift) * (bins * per_plane)))
                element = firsts[row] + column
                place = cells[row] + (element >> shift) * (bins * per_plane) + (element & (per_plane - 1))
                totals[start + row, column] += flat[place]


@njit(cache=True, nogil=True)
def add_wide(words: Words, places: RowNumbers, positions: int, totals: Words) -> None:
    """Add one segment's elements of 128 bits, [leaf, plane, bin, word], to some rows."""
    _, planes, bins, per_plane = words.shape
    flat, width = words.reshape(-1), totals.shape[1]
    step = max(1, FOLD_CELLS // planes)
    found = np.empty((2, 2, step), np.int64)
    _find(words.shape, places[:step], positions, width * per_plane, found[0], found[0])
    for start in range(0, len(places), step):
        now, soon = found[start // step & 1], found[1 - (start // step & 1)]
        _find(words.shape, places[start + step : start + 2 * step], positions, width * per_plane, soon, now)
        cells, coming = now[0], soon[0]
        for column in range(width):
            plane = column * (bins * per_plane)
            for row in range(min(step, len(places) - start)):
                fetch(flat, int(coming[row] + plane))
                place = cells[row] + plane
                low = flat[place]
                total = totals[start + row, column, 0] + low
                totals[start + row, column, 0] = total
                totals[start + row, column, 1] += flat[place + 1] + np.uint64(total < low)


@njit(cache=True, nogil=True)
def _find(
    shape: tuple[int, int, int, int],
    places: RowNumbers,
    positions: int,
    width: int,
    found: npt.NDArray[np.int64],
    instead: npt.NDArray[np.int64],
) -> None:
    """Where places' elements are: what one step adds has been asked for, row by row, while the step before was added.

    Divides by multiplying: half a unit more than an integer below 2^32 is too far from every multiple of a divisor
    below 2^32 for the rounding of doubles to reach it.

    Args:
        shape: leaves, planes, bins, elements of a plane.
        places: the rows' places.
        positions: p, the positions of a leaf.
        width: elements of a row.
        found: written for every place: where its first plane is, and how many elements in it come before its own.
        instead: written to `found` where there are no more places, so that nothing else is asked for.
    """
    _, planes, bins, per_plane = shape
    shift = per_plane >> 1
    per_position, per_bin = 1 / positions, 1 / bins
    for row in range(len(places)):
        place = np.int64(places[row])
        tree = np.int64((place + 0.5) * per_position)
        leaf = np.int64((tree + 0.5) * per_bin)
        first = (place - tree * positions) * width
        found[0, row] = ((leaf * planes + (first >> shift) - leaf) * bins + tree) * per_plane
        found[1, row] = first & (per_plane - 1)
    for row in range(len(places), found.shape[1]):
        found[0, row], found[1, row] = instead[0, row], instead[1, row]
