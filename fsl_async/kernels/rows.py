"""Rows in and out of the segments: a block laid out for selection, the selection itself, and sums folded back to rows.

A segment holds the rows in y-order, [leaf][bin][slot]: row u stands at place y = P_s(u), and

    slot = y mod p      bin = (y div p) mod b      leaf = y div (b·p)

for p positions to a leaf and b bins. So the places of neighbouring bins under one leaf are neighbours in memory, and a query's
bits for them, bit (bin·p + slot) of a leaf's bytes, lowest first, are too.

Selection reads every row once for all waiting queries. It works on a *tile*, a few leaves of a few bins: a row is loaded a
*lane* of up to 64 bytes at a time, and each query of a group XORs it, masked by its bit, into an accumulator
that stays in a register for all leaves of the tile. Nothing branches or indexes memory by a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from fsl_async.errors import MisuseError

__all__ = ["fold", "payload_of_planes", "payload_planes", "permuted_model", "select_rows"]

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
Masks: TypeAlias = npt.NDArray[np.uint32]
Rows: TypeAlias = npt.NDArray[np.uint32]
Elements: TypeAlias = npt.NDArray[Any]
Tables: TypeAlias = tuple[Rows, ...]

SEGMENTS = 3
BLOCK_BYTES = 16

LANE_BYTES = 64
GROUP = 8
LANES = (64, 32, 16, 8, 4, 2, 1)
TILE_LEAVES = 16
TILE_BYTES = 16384


def permuted_model(model_rows: Bytes, inverse: Rows, bins: int, positions: int) -> Bytes:
    """Lay a block's rows out in y-order for one segment, with zero rows up to a whole number of leaves.

    Rows keep their length: a table takes no more memory than the block, up to one leaf. It starts on a cache line, so rows of
    64 bytes never straddle two.

    Args:
        model_rows: uint8[m, row_bytes], C-contiguous.
        inverse: uint32[m], the row at each place: the segment's `Permutation.inverse_table()`.
        bins: b, the bins of a segment.
        positions: p, the positions of a leaf.

    Returns:
        uint8[Λ·b·p, row_bytes] with Λ = ⌈m/(b·p)⌉.

    Raises:
        MisuseError: shapes or dtypes that do not fit together.
    """
    if model_rows.dtype != np.uint8 or model_rows.ndim != 2 or not model_rows.flags.c_contiguous:
        raise MisuseError(f"expected C-contiguous uint8[m, row_bytes], got {model_rows.dtype}{model_rows.shape}")
    rows, row_bytes = model_rows.shape
    if inverse.dtype != np.uint32 or inverse.shape != (rows,):
        raise MisuseError(f"expected the inverse table as uint32[{rows}], got {inverse.dtype}{inverse.shape}")
    leaf_places = bins * positions
    table = _aligned(-(-rows // leaf_places) * leaf_places, row_bytes)
    np.take(model_rows, inverse, axis=0, out=table[:rows], mode="clip")
    table[rows:] = 0
    return table


def _aligned(rows: int, row_bytes: int) -> Bytes:
    size = rows * row_bytes
    memory = np.empty(size + LANE_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % LANE_BYTES
    return memory[start : start + size].reshape(rows, row_bytes)


def select_rows(
    table: Bytes, bits: Bytes, answers: Bytes, positions: int, start: int = 0, stop: int | None = None
) -> None:
    """Answer waiting queries for the bins from `start` up to `stop`: per bin, the XOR of the rows whose bit is 1.

    Args:
        table: uint8[Λ·b·p, row_bytes], one segment from `permuted_model`.
        bits: uint8[Q, Λ, ⌈b·p/8⌉], each query's selection bits; those past b·p are not looked at.
        answers: uint8[Q, b, row_bytes], written for the bins of the range; calls with other ranges may run meanwhile.
        positions: p, the positions of a leaf.
        start: the first bin.
        stop: the bin after the last, by default b.

    Raises:
        MisuseError: shapes or dtypes that do not fit together, or a range outside the bins.
    """
    queries, bins, row_bytes = answers.shape
    stop = bins if stop is None else stop
    leaf_places = bins * positions
    leaves = len(table) // leaf_places
    _require("table", table, np.uint8, (leaves * leaf_places, row_bytes))
    _require("bits", bits, np.uint8, (queries, leaves, -(-leaf_places // 8)))
    _require("answers", answers, np.uint8, (queries, bins, row_bytes))
    if not 0 <= start <= stop <= bins:
        raise MisuseError(f"expected a range within {bins} bins, got {start} to {stop}")
    if queries and row_bytes:
        tile, masks = _scratch(queries, row_bytes, positions)
        _select(
            table.reshape(leaves, leaf_places, row_bytes), bits, answers[:, start:stop], start, positions, tile, masks
        )


def _require(name: str, array: npt.NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...]) -> None:
    if array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
        raise MisuseError(
            f"{name}: expected C-contiguous {dtype.__name__}{list(shape)}, got {array.dtype}{list(array.shape)}"
        )


def _scratch(queries: int, row_bytes: int, positions: int) -> tuple[Bytes, Masks]:
    """Accumulators uint8[groups, bins, lanes, group, lane] and masks uint32[leaves, places, group] of one tile."""
    group = 1 if queries == 1 else GROUP
    groups = -(-queries // group)
    lane = min(LANE_BYTES, 1 << (row_bytes.bit_length() - 1))
    lanes = -(-row_bytes // lane)
    bins = max(1, TILE_BYTES // (group * lanes * lane))
    tile = np.zeros((groups, bins, lanes, group, lane), dtype=np.uint8)
    return tile, np.zeros((TILE_LEAVES, bins * positions + 16, group), dtype=np.uint32)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _select(table: Bytes, bits: Bytes, answers: Bytes, start: int, positions: int, tile: Bytes, masks: Masks) -> None:
    """Fill `answers` uint8[Q, n, row_bytes] for the n bins from `start`, tile by tile."""
    groups, tile_bins, lanes, _, lane = tile.shape
    row_bytes = table.shape[2]
    for low in range(0, answers.shape[1], tile_bins):
        high = min(low + tile_bins, answers.shape[1])
        first, last = (start + low) * positions, (start + high) * positions
        tile[:] = 0
        for leaf in range(0, len(table), TILE_LEAVES):
            leaves = table[leaf : leaf + TILE_LEAVES]
            for group in range(groups):
                _expand(bits, leaf, group, first, last, masks)
                for place in range(first, last):
                    in_tile = (place - first) // positions
                    mask = masks[: len(leaves), place - (first & -8)]
                    for part in range(lanes):
                        offset = min(part * lane, row_bytes - lane)
                        column = leaves[:, place, offset : offset + lane]
                        _accumulate(tile[group, in_tile, part], column, mask)
        _write(tile, answers[:, low:high])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _expand(bits: Bytes, leaf: int, group: int, first: int, last: int, masks: Masks) -> None:
    """Turn the bits of a tile's places, from the byte that holds the first, into masks of all ones or zeros."""
    size = masks.shape[2]
    for query in range(group * size, min((group + 1) * size, len(bits))):
        for row in range(leaf, min(leaf + TILE_LEAVES, bits.shape[1])):
            for byte in range(first >> 3, (last + 7) >> 3):
                value = np.int64(bits[query, row, byte])
                for bit in range(8):
                    place = 8 * (byte - (first >> 3)) + bit
                    masks[row - leaf, place, query - group * size] = -(value >> bit & 1) & 0xFFFFFFFF


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _write(tile: Bytes, answers: Bytes) -> None:
    """Copy a tile's accumulators out. The last lane of a row may overlap the one before; both hold the same there."""
    _, _, lanes, size, lane = tile.shape
    queries, bins, row_bytes = answers.shape
    for query in range(queries):
        for bin_ in range(bins):
            for part in range(lanes):
                offset = min(part * lane, row_bytes - lane)
                for byte in range(lane):
                    answers[query, bin_, offset + byte] = tile[query // size, bin_, part, query % size, byte]


def _accumulate(accumulators: Bytes, column: Bytes, masks: Masks) -> None:
    """XOR into each accumulator, uint8[group, lane], those lanes of uint8[n, lane] whose mask, uint32[n, group], is set."""
    for lane, row in zip(column, masks, strict=True):
        accumulators ^= lane & row.astype(np.uint8)[:, np.newaxis]


@overload(_accumulate, strict=False)  # type: ignore[untyped-decorator]
def _compile_accumulate(accumulators: Any, column: Any, masks: Any) -> Any:
    return lambda accumulators, column, masks: _emit_accumulate(accumulators, column, masks)


@intrinsic  # type: ignore[untyped-decorator]
def _emit_accumulate(typing: Any, accumulators: Any, column: Any, masks: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        arrays = [
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, values, strict=True)
        ]
        group, lane = cgutils.unpack_tuple(builder, arrays[0].shape)
        _switch(
            builder,
            group,
            (1, GROUP),
            lambda size: _switch(builder, lane, LANES, lambda width: _accumulate_lanes(builder, arrays, size, width)),
        )
        return context.get_dummy_value()

    return types.void(accumulators, column, masks), generate


def _switch(builder: Any, value: Any, cases: tuple[int, ...], generate: Any) -> None:
    """Generate code for every case of a value, and go to the one that it has."""
    end = builder.append_basic_block("end")
    default = builder.append_basic_block("never")
    switch = builder.switch(value, default)
    for case in cases:
        block = builder.append_basic_block(f"case{case}")
        switch.add_case(ir.Constant(value.type, case), block)
        builder.position_at_end(block)
        generate(case)
        builder.branch(end)
    builder.position_at_end(default)
    builder.unreachable()
    builder.position_at_end(end)


def _accumulate_lanes(builder: Any, arrays: Any, group: int, lane: int) -> None:
    accumulators, column, masks = arrays
    element = min(lane, 4)
    kind = ir.VectorType(ir.IntType(8 * element), lane // element)
    targets = [_address(builder, accumulators.data, ir.Constant(ir.IntType(64), lane * q), kind) for q in range(group)]
    registers = [cgutils.alloca_once(builder, kind) for _ in targets]
    for target, register in zip(targets, registers, strict=True):
        builder.store(builder.load(target, align=1), register)
    column_step = cgutils.unpack_tuple(builder, column.strides)[0]
    mask_step = cgutils.unpack_tuple(builder, masks.strides)[0]
    with cgutils.for_range(builder, cgutils.unpack_tuple(builder, column.shape)[0]) as loop:
        row = builder.load(_address(builder, column.data, builder.mul(loop.index, column_step), kind), align=1)
        at = builder.mul(loop.index, mask_step)
        for q, register in enumerate(registers):
            offset = builder.add(at, ir.Constant(at.type, 4 * q))
            mask = builder.load(_address(builder, masks.data, offset, ir.IntType(32)), align=4)
            if element < 4:
                mask = builder.trunc(mask, kind.element)
            chosen = builder.and_(row, _splat(builder, mask, kind))
            builder.store(builder.xor(builder.load(register), chosen), register)
    for target, register in zip(targets, registers, strict=True):
        builder.store(builder.load(register), target, align=1)


def _address(builder: Any, pointer: Any, offset: Any, kind: Any) -> Any:
    raw = builder.bitcast(pointer, ir.IntType(8).as_pointer())
    return builder.bitcast(builder.gep(raw, [offset]), kind.as_pointer())


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    undefined = ir.Constant(kind, ir.Undefined)
    vector = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(
        vector, undefined, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), [0] * kind.count)
    )


def fold(
    accumulator: Words,
    tables: Sequence[Rows],
    totals: Elements,
    positions: int,
    start: int = 0,
    stop: int | None = None,
) -> None:
    """Sum each row's shares over the segments: Δw[u] = Σ_s acc[s] at P_s(u), for the rows from `start` up to `stop`.

    Args:
        accumulator: uint64[3, Λ, w, b, 2]: plane i of the payload under a leaf is [s, leaf, i, bin]. A payload is p·width
            elements, slot after slot, little-endian, cut into w blocks of 16 bytes.
        tables: the three segments' `Permutation.table()`, uint32[m] each.
        totals: uint32[m, width], uint64[m, width], or for 128 bits uint64[m, width, 2] with the low word first; written for the
            rows of the range; calls with other ranges may run meanwhile.
        positions: p, the positions of a leaf.
        start: the first row.
        stop: the row after the last, by default m.

    Raises:
        MisuseError: shapes or dtypes that do not fit together, or a range outside the rows.

    Source: paper, "Secure Submodel Aggregation": the servers' reconstruction from the bins of a row.
    """
    rows, width = totals.shape[:2]
    stop = rows if stop is None else stop
    wide = totals.ndim == 3
    dtype = np.uint32 if totals.dtype == np.uint32 and not wide else np.uint64
    _require("totals", totals, dtype, (rows, width, 2) if wide else (rows, width))
    for table in tables:
        _require("table", table, np.uint32, (rows,))
    _, leaves, planes, bins, _ = accumulator.shape
    needed = -(-positions * width * totals.itemsize * (2 if wide else 1) // BLOCK_BYTES)
    _require("accumulator", accumulator, np.uint64, (SEGMENTS, leaves, needed, bins, 2))
    if len(tables) != SEGMENTS or leaves * bins * positions < rows or not 0 <= start <= stop <= rows:
        raise MisuseError(
            f"expected {SEGMENTS} tables, {rows} places and a range of rows within them, got {len(tables)} tables, "
            f"{leaves * bins * positions} places and the range {start} to {stop}"
        )
    kernel = _fold_wide if wide else _fold_words
    kernel(accumulator.view(totals.dtype), tuple(tables), totals, positions, start, stop)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fold_words(elements: Elements, tables: Tables, totals: Elements, positions: int, start: int, stop: int) -> None:
    """Fold elements of 32 or 64 bits, [s, leaf, plane, bin, element of the plane]."""
    _, _, _, bins, per_plane = elements.shape
    width = totals.shape[1]
    for row in range(start, stop):
        totals[row] = 0
        for segment in range(SEGMENTS):
            place = np.int64(tables[segment][row])
            tree, slot = place // positions, place % positions
            leaf, bin_ = tree // bins, tree % bins
            for column in range(width):
                element = slot * width + column
                totals[row, column] += elements[segment, leaf, element // per_plane, bin_, element % per_plane]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fold_wide(elements: Words, tables: Tables, totals: Words, positions: int, start: int, stop: int) -> None:
    """Fold elements of 128 bits, one to a plane."""
    bins, width = elements.shape[3], totals.shape[1]
    for row in range(start, stop):
        totals[row] = 0
        for segment in range(SEGMENTS):
            place = np.int64(tables[segment][row])
            tree, slot = place // positions, place % positions
            leaf, bin_ = tree // bins, tree % bins
            for column in range(width):
                share = elements[segment, leaf, slot * width + column, bin_]
                totals[row, column, 0] += share[0]
                totals[row, column, 1] += share[1] + (totals[row, column, 0] < share[0])


def payload_planes(payloads: Bytes) -> Words:
    """Cut payloads into planes: uint8[B, payload_bytes] as they stand on the wire to uint64[w, B, 2], zero-padded.

    Elements reach here as their little-endian bytes, `elements.view(numpy.uint8)` of a contiguous array.
    """
    trees, payload_bytes = payloads.shape
    planes = -(-payload_bytes // BLOCK_BYTES)
    padded = np.zeros((trees, planes * BLOCK_BYTES), dtype=np.uint8)
    padded[:, :payload_bytes] = payloads
    return np.ascontiguousarray(padded.view(np.uint64).reshape(trees, planes, 2).transpose(1, 0, 2))


def payload_of_planes(planes: Words, payload_bytes: int) -> Bytes:
    """The inverse of `payload_planes`: uint64[w, B, 2] to uint8[B, payload_bytes]."""
    _, trees, _ = planes.shape
    joined = np.ascontiguousarray(planes.transpose(1, 0, 2)).reshape(trees, -1).view(np.uint8)
    return np.ascontiguousarray(joined[:, :payload_bytes])
