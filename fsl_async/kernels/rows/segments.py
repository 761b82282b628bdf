"""Rows in and out of the segments: a block laid out for selection, selection, and sums folded back to rows.

A segment holds the rows in y-order, [leaf][bin][slot]: row u stands at place y = P_s(u), and

    slot = y mod p      bin = (y div p) mod b      leaf = y div (b·p)

for p positions to a leaf and b bins. So the places of neighbouring bins under one leaf are neighbours in memory,
and a query's bits for them, bit (bin·p + slot) of a leaf's bytes, lowest first, are too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.lane import passes

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
RowNumbers: TypeAlias = npt.NDArray[np.uint32]
Elements: TypeAlias = npt.NDArray[Any]

SEGMENTS = 3
BLOCK_BYTES = 16

LINE_BYTES = 64
TAKEN_ROWS = 2**18


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
    memory = np.empty(size + LINE_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % LINE_BYTES
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
    wanted = bits[:, :, start * positions // 8 : -(-stop * positions // 8)]
    passes().select_places(places, wanted, answers[:, start:stop], positions, start * positions % 8)


def _require(
    name: str, array: npt.NDArray[Any], dtype: type[np.generic], shape: tuple[int, ...], contiguous: bool = False
) -> None:
    if array.dtype != dtype or array.shape != shape or (contiguous and not array.flags.c_contiguous):
        layout = "C-contiguous " if contiguous else ""
        raise MisuseError(
            f"{name}: expected {layout}{dtype.__name__}{list(shape)}, got {array.dtype}{list(array.shape)}"
        )


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
    add = passes().add_wide if wide else passes().add_words
    totals[start:stop] = 0
    # Segment after segment: one of them may fit the last-level cache when all three do not.
    for elements, table in zip(accumulator.view(totals.dtype), tables, strict=True):
        add(elements, table[start:stop], positions, totals[start:stop])


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
