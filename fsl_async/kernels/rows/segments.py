"""Rows in and out of the segments: a block laid out for selection, selection, and sums folded back to rows.

A segment holds the rows in y-order, [leaf][bin][slot]: row u stands at place y = P_s(u), and

    slot = y mod p      bin = (y div p) mod b      leaf = y div (b·p)

for p positions to a leaf and b bins. So the places of neighbouring bins under one leaf are neighbours in memory,
and a query's bits for them, bit (bin·p + slot) of a leaf's bytes, lowest first, are too.

Selection reads every row once for all waiting queries. It works on a *tile*, a few leaves of a few bins: a row is
loaded a *lane* of up to 64 bytes at a time, and each query of a group XORs it, masked by its bit, into an
accumulator that stays in a register for all leaves of the tile. Nothing branches or indexes memory by a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

from fsl_async.errors import MisuseError
from fsl_async.kernels.rows.lanes import GROUP, LANES, accumulate, deliver, fetch, spread

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
Masks: TypeAlias = npt.NDArray[np.uint32]
RowNumbers: TypeAlias = npt.NDArray[np.uint32]
Elements: TypeAlias = npt.NDArray[Any]

SEGMENTS = 3
BLOCK_BYTES = 16

TILE_LEAVES = 16
FOLD_CELLS = 256
"""Rows that are on their way into the first-level cache have at most so many cells."""

TAKEN_ROWS = 2**18
TILE_BYTES = 65536


def permuted_model(
    model_rows: Bytes, inverse: RowNumbers, bins: int, positions: int, some: range | None = None
) -> Bytes:
    """Lay a block's rows out in y-order for one segment, with zero rows up to a whole number of leaves.

    Rows keep their length: a table takes no more memory than the block, up to one leaf. It starts on a cache line,
    so rows of 64 bytes never straddle two.

    Args:
        model_rows: uint8[m, row_bytes], C-contiguous.
        inverse: uint32[m], the row at each place: the segment's `Permutation.inverse_table()`.
        bins: b, the bins of a segment.
        positions: p, the positions of a leaf.
        some: the bins whose rows are laid out; by default all.

    Returns:
        uint8[Λ·b·p, row_bytes] with Λ = ⌈m/(b·p)⌉; with b the number of `some`, if these are given.

    Raises:
        MisuseError: shapes or dtypes that do not fit together.
    """
    if model_rows.dtype != np.uint8 or model_rows.ndim != 2 or not model_rows.flags.c_contiguous:
        raise MisuseError(f"expected C-contiguous uint8[m, row_bytes], got {model_rows.dtype}{model_rows.shape}")
    rows, row_bytes = model_rows.shape
    if inverse.dtype != np.uint32 or inverse.shape != (rows,):
        raise MisuseError(f"expected the inverse table as uint32[{rows}], got {inverse.dtype}{inverse.shape}")
    leaf_places = bins * positions
    leaves = -(-rows // leaf_places)
    if some is not None and len(some) < bins:
        places = np.arange(some.start * positions, some.stop * positions, dtype=np.uint64)
        numbers = (np.arange(leaves, dtype=np.uint64)[:, None] * np.uint64(leaf_places) + places).reshape(-1)
        table = _aligned(len(numbers), row_bytes)
        np.take(model_rows, np.take(inverse, numbers, mode="clip"), axis=0, out=table, mode="clip")
        table[numbers >= rows] = 0
        return table
    table = _aligned(leaves * leaf_places, row_bytes)
    for start in range(0, rows, TAKEN_ROWS):  # row numbers are made 64 bits wide, a range at a time
        part = slice(start, min(start + TAKEN_ROWS, rows))
        np.take(model_rows, inverse[part], axis=0, out=table[part], mode="clip")
    table[rows:] = 0
    return table


def _aligned(rows: int, row_bytes: int) -> Bytes:
    size = rows * row_bytes
    memory = np.empty(size + LANES[0], dtype=np.uint8)
    start = -memory.ctypes.data % LANES[0]
    return memory[start : start + size].reshape(rows, row_bytes)


def select_rows(
    table: Bytes, bits: Bytes, answers: Bytes, positions: int, start: int = 0, stop: int | None = None
) -> None:
    """Answer waiting queries for the bins from `start` up to `stop`: per bin, the XOR of the rows whose bit is 1.

    Args:
        table: uint8[Λ·b·p, row_bytes], C-contiguous: one segment from `permuted_model`.
        bits: uint8[Q, Λ, ⌈b·p/8⌉], each query's selection bits; those past b·p are not looked at.
        answers: uint8[Q, b, row_bytes], written for the bins of the range; its last axis is contiguous. Calls
            with other ranges may run meanwhile.
        positions: p, the positions of a leaf.
        start: the first bin.
        stop: the bin after the last, by default b.

    Raises:
        MisuseError: shapes or dtypes that do not fit together, or a range outside the bins.
    """
    queries, bins, row_bytes = answers.shape
    if answers.size and row_bytes > 1 and answers.strides[2] != 1:
        raise MisuseError(f"answers: expected contiguous rows, got strides {answers.strides}")
    stop = bins if stop is None else stop
    leaves = len(table) // (bins * positions)
    _require("answers", answers, np.uint8, (queries, bins, row_bytes))
    _require("table", table, np.uint8, (leaves * bins * positions, row_bytes), contiguous=True)
    _require("bits", bits, np.uint8, (queries, leaves, -(-bins * positions // 8)))
    if not 0 <= start <= stop <= bins:
        raise MisuseError(f"expected a range within {bins} bins, got {start} to {stop}")
    if queries == 0 or row_bytes == 0 or start == stop:
        return
    places = table.reshape(leaves, bins * positions, row_bytes)[:, start * positions : stop * positions]
    tile, masks = scratch(queries, row_bytes, positions)
    grouped = grouped_bits(bits, start * positions, stop * positions, tile)
    _select(places, grouped, answers[:, start:stop], positions, start * positions % 8, tile, masks)


def _require(
    name: str, array: npt.NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...], contiguous: bool = False
) -> None:
    if array.dtype != dtype or array.shape != shape or (contiguous and not array.flags.c_contiguous):
        layout = "C-contiguous " if contiguous else ""
        raise MisuseError(
            f"{name}: expected {layout}{dtype.__name__}{list(shape)}, got {array.dtype}{list(array.shape)}"
        )


def scratch(queries: int, row_bytes: int, positions: int) -> tuple[Bytes, Masks]:
    """One tile's accumulators uint8[groups, bins, lanes, group, lane] and masks uint32[leaves, places, group]."""
    group = 1 if queries == 1 else GROUP
    groups = -(-queries // group)
    lane = max(lane for lane in LANES if lane <= row_bytes)
    lanes = -(-row_bytes // lane)
    bins = max(8, TILE_BYTES // (group * lanes * lane) // 8 * 8)
    tile = np.empty((groups, bins, lanes, group, lane), dtype=np.uint8)
    return tile, np.empty((TILE_LEAVES, bins * positions + 8, group), dtype=np.uint32)


def grouped_bits(bits: Bytes, first: int, stop: int, tile: Bytes) -> Bytes:
    """The bytes that hold the bits from `first` up to `stop`, as uint8[groups, group, Λ, n].

    The queries that fill up the last group select nothing.
    """
    groups, _, _, group, _ = tile.shape
    queries, leaves, _ = bits.shape
    wanted = bits[:, :, first // 8 : -(-stop // 8)]
    grouped = np.zeros((groups * group, leaves, wanted.shape[2]), dtype=np.uint8)
    grouped[:queries] = wanted
    return grouped.reshape(groups, group, leaves, -1)


@njit(cache=True, nogil=True)
def _select(places: Bytes, bits: Bytes, answers: Bytes, positions: int, skew: int, tile: Bytes, masks: Masks) -> None:
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


def fold(
    accumulator: Words,
    tables: Sequence[RowNumbers],
    totals: Elements,
    positions: int,
    start: int = 0,
    stop: int | None = None,
) -> None:
    """Sum each row's shares over the segments: Δw[u] = Σ_s acc[s] at P_s(u), for the rows from `start` up to `stop`.

    Args:
        accumulator: uint64[3, Λ, w, b, 2]: plane i of the payload under a leaf is [s, leaf, i, bin]. A payload is
            p·width
            elements, slot after slot, little-endian, cut into w blocks of 16 bytes.
        tables: by segment, the places of the rows (`Permutation.forward`), uint32[m] each.
        totals: uint32[m, width], uint64[m, width], or for 128 bits uint64[m, width, 2] with the low word first;
            written for the
            rows of the range; calls with other ranges may run meanwhile.
        positions: p, the positions of a leaf.
        start: the first row.
        stop: the row after the last, by default m.

    Raises:
        MisuseError: shapes or dtypes that do not fit together, or a range outside the rows.

    Source: paper §"Basic Protocols": the servers' reconstruction of Δw from the bins of a row.
    """
    rows, width = totals.shape[:2]
    stop = rows if stop is None else stop
    wide = totals.ndim == 3
    dtype = np.uint32 if totals.dtype == np.uint32 and not wide else np.uint64
    _require("totals", totals, dtype, (rows, width, 2) if wide else (rows, width), contiguous=True)
    for table in tables:
        _require("table", table, np.uint32, (rows,), contiguous=True)
    leaves, bins = accumulator.shape[1], accumulator.shape[3]
    needed = -(-positions * width * totals.itemsize * (2 if wide else 1) // BLOCK_BYTES)
    _require("accumulator", accumulator, np.uint64, (SEGMENTS, leaves, needed, bins, 2), contiguous=True)
    if len(tables) != SEGMENTS or leaves * bins * positions < rows or not 0 <= start <= stop <= rows:
        raise MisuseError(
            f"expected {SEGMENTS} tables, {rows} places and a range of rows within them, got {len(tables)} tables, "
            f"{leaves * bins * positions} places and the range {start} to {stop}"
        )
    add = _add_wide if wide else _add_words
    totals[start:stop] = 0
    # Segment after segment: one of them may fit the last-level cache when all three do not.
    for elements, table in zip(accumulator.view(totals.dtype), tables, strict=True):
        add(elements, table[start:stop], positions, totals[start:stop])


@njit(cache=True, nogil=True)
def _add_words(elements: Elements, places: RowNumbers, positions: int, totals: Elements) -> None:
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
def _add_wide(words: Words, places: RowNumbers, positions: int, totals: Words) -> None:
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


def payload_planes(payloads: Bytes) -> Words:
    """Cut payloads into planes: uint8[B, payload_bytes] as they stand on the wire to uint64[w, B, 2], zero-padded.

    Payloads of one whole block, aligned, are planes as they are: the result is then a view of them.
    Elements reach here as their little-endian bytes, `elements.view(numpy.uint8)` of a contiguous array.
    """
    trees, payload_bytes = payloads.shape
    planes = -(-payload_bytes // BLOCK_BYTES)
    if payload_bytes < planes * BLOCK_BYTES:
        padded = np.zeros((trees, planes * BLOCK_BYTES), dtype=np.uint8)
        padded[:, :payload_bytes] = payloads
        payloads = padded
    blocks = np.ascontiguousarray(payloads).view(np.uint64).reshape(trees, planes, 2)
    return np.require(blocks.transpose(1, 0, 2), requirements=["C", "A"])


def payload_of_planes(planes: Words, payload_bytes: int) -> Bytes:
    """The inverse of `payload_planes`: uint64[w, B, 2] to uint8[B, payload_bytes]."""
    _, trees, words = planes.shape
    joined = np.ascontiguousarray(planes.transpose(1, 0, 2)).reshape(trees, words * len(planes)).view(np.uint8)
    return np.ascontiguousarray(joined[:, :payload_bytes])
