"""What selection does with vectors: bits into masks, masked lanes into accumulators, accumulators into answers.

A *lane* is the 1, 4, 8 or 64 bytes of a row that one register holds. Rows of other lengths are covered by lanes of
which the last may overlap the one before. A *group* of queries shares each lane that is loaded: one query, or GROUP.

The functions have compiled forms alone: LLVM code on generic vectors, so every processor gets its own instructions;
nothing branches or indexes memory by a bit. `plain.rows` computes the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

Bytes: TypeAlias = npt.NDArray[np.uint8]
Masks: TypeAlias = npt.NDArray[np.uint32]
Builder: TypeAlias = Any
Value: TypeAlias = Any

LANES = (64, 8, 4, 1)
GROUP = 16
# How far ahead of a load memory is asked for: long enough to arrive, short enough to stay in the first-level cache.
AHEAD_BYTES = 1024
FIRST_LEVEL = 3

_GROUPS = (1, GROUP)
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


def spread(bits: Bytes, masks: Masks) -> None:
    """Turn each query's bits, uint8[group, leaves, n] with the lowest first, into masks, uint32[leaves, ≥ 8n, group].

    A mask has all bits set or none.
    """


def accumulate(tile: Bytes, rows: Bytes, masks: Masks, positions: int) -> None:
    """XOR into every bin's accumulators the rows under all leaves whose mask is set.

    Args:
        tile: uint8[bins, lanes, group, lane], the accumulators.
        rows: uint8[leaves, bins · positions, row_bytes], with neighbouring bytes of a row neighbours in memory.
        masks: uint32[≥ leaves, ≥ bins · positions, group].
        positions: p, rows of a bin under one leaf.
    """


def deliver(tile: Bytes, answers: Bytes) -> None:
    """Copy accumulators uint8[bins, lanes, group, lane] to the answers uint8[≤ group, bins, row_bytes] of a group."""


def fetch(array: npt.NDArray[Any], index: int) -> None:
    """Ask for what a flat array has at an index, which is read soon; in Python there is nothing to do."""


# The compiled forms.


class _Array:
    """An array's address, shape and strides inside generated code."""

    def __init__(self, context: Any, builder: Builder, kind: Any, value: Value) -> None:
        struct = context.make_array(kind)(context, builder, value)
        self._builder = builder
        self._data = builder.bitcast(struct.data, I8.as_pointer())
        self.shape = _unpack(builder, struct.shape)
        self._strides = _unpack(builder, struct.strides)

    def at(self, kind: Any, *place: Value | int) -> Value:
        """The address of an element, as a pointer to `kind`; missing indices are 0."""
        builder = self._builder
        offset = I64(0)
        for index, stride in zip(place, self._strides, strict=False):
            index = I64(index) if isinstance(index, int) else index
            offset = builder.add(offset, builder.mul(index, stride))
        return builder.bitcast(builder.gep(self._data, [offset]), kind.as_pointer())


def address_of(context: Any, builder: Builder, kind: Any, value: Value) -> Value:
    """The address of an array's first byte."""
    return builder.bitcast(context.make_array(kind)(context, builder, value).data, I8.as_pointer())


def _unpack(builder: Builder, values: Value) -> Sequence[Value]:
    return cgutils.unpack_tuple(builder, values)  # type: ignore[no-untyped-call, no-any-return]


@overload(spread, strict=False)
def _compile_spread(bits: Any, masks: Any) -> Any:
    return lambda bits, masks: _emit_spread(bits, masks)  # type: ignore[call-arg]


@intrinsic
def _emit_spread(typing: Any, bits: Any, masks: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Any) -> Any:
        arrays = _arrays(context, builder, signature, values)
        for group in cases(builder, arrays[0].shape[0], _GROUPS):
            _spread_group(builder, arrays[0], arrays[1], group)
        return context.get_dummy_value()

    return types.void(bits, masks), generate


@overload(fetch, strict=False)
def _compile_fetch(array: Any, index: Any) -> Any:
    return lambda array, index: _emit_fetch(array, index)  # type: ignore[call-arg]


@intrinsic
def _emit_fetch(typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, values[0]).data
        place = context.cast(builder, values[1], signature.args[1], types.intp)
        prefetch(builder, builder.bitcast(builder.gep(data, [place]), I8.as_pointer()), FIRST_LEVEL)
        return context.get_dummy_value()

    return types.void(array, index), generate


@overload(accumulate, strict=False)
def _compile_accumulate(tile: Any, rows: Any, masks: Any, positions: Any) -> Any:
    return lambda tile, rows, masks, positions: _emit_accumulate(tile, rows, masks, positions)  # type: ignore[call-arg]


@intrinsic
def _emit_accumulate(typing: Any, tile: Any, rows: Any, masks: Any, positions: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Any) -> Any:
        arrays = _arrays(context, builder, signature, values[:3])
        for group in cases(builder, arrays[0].shape[2], _GROUPS):
            for lane in cases(builder, arrays[0].shape[3], LANES):
                _accumulate_bins(builder, arrays, values[3], group, lane)
        return context.get_dummy_value()

    return types.void(tile, rows, masks, types.intp), generate


@overload(deliver, strict=False)
def _compile_deliver(tile: Any, answers: Any) -> Any:
    return lambda tile, answers: _emit_deliver(tile, answers)  # type: ignore[call-arg]


@intrinsic
def _emit_deliver(typing: Any, tile: Any, answers: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Any) -> Any:
        tile_, answers_ = _arrays(context, builder, signature, values)
        for lane in cases(builder, tile_.shape[3], LANES):
            _deliver_lanes(builder, tile_, answers_, lane)
        return context.get_dummy_value()

    return types.void(tile, answers), generate


def _arrays(context: Any, builder: Builder, signature: Any, values: Sequence[Value]) -> list[_Array]:
    return [_Array(context, builder, kind, value) for kind, value in zip(signature.args, values, strict=False)]


def cases(builder: Builder, value: Value, values: Sequence[int]) -> Iterator[int]:
    """Generate code for every value that there can be, one in each turn of the caller's loop.

    At run time the code of the value that it is runs.
    """
    end, impossible = builder.append_basic_block(), builder.append_basic_block()
    switch = builder.switch(value, impossible)
    for case in values:
        block = builder.append_basic_block()
        switch.add_case(value.type(case), block)
        builder.position_at_end(block)
        yield case
        builder.branch(end)
    builder.position_at_end(impossible)
    builder.unreachable()
    builder.position_at_end(end)


@contextmanager
def loop(builder: Builder, count: Value) -> Iterator[Value]:
    """Generate a loop around the caller's code; the index counts from 0."""
    with cgutils.for_range(builder, count) as turn:
        yield turn.index


def _spread_group(builder: Builder, bits: _Array, masks: _Array, group: int) -> None:
    """Bit i of an element, shifted to the top and back down, fills the element.

    A vector is as wide as the masks that lie side by side: those of a group's queries, or of a lone query's eight
    bits.
    """
    count = 8 if group == 1 else group
    kind = ir.VectorType(I32, count)
    _, leaves, size = bits.shape
    with loop(builder, leaves) as leaf, loop(builder, size) as byte:
        vector = ir.Constant(kind, None)
        for element in range(count):
            value = builder.load(bits.at(I8, element % group, leaf, byte))
            vector = builder.insert_element(vector, builder.zext(value, I32), I32(element))
        first = builder.mul(byte, I64(8))
        for bit in range(0, 8, count // group):
            raise_by = [31 - bit - element // group for element in range(count)]
            raised = builder.shl(vector, ir.Constant(kind, raise_by))
            mask = builder.ashr(raised, ir.Constant(kind, [31] * count))
            builder.store(mask, masks.at(kind, leaf, builder.add(first, I64(bit))), align=4)


def _accumulate_bins(builder: Builder, arrays: Sequence[_Array], positions: Value, group: int, lane: int) -> None:
    """The accumulators of one bin and lane stay in registers while all its rows pass by."""
    tile, rows, masks = arrays
    kind = _lane_type(lane)
    bins, lanes, _, _ = tile.shape
    with loop(builder, bins) as bin_, loop(builder, lanes) as part:
        offset = _offset(builder, part, lane, rows.shape[2])
        targets = [tile.at(kind, bin_, part, query) for query in range(group)]
        registers = [cgutils.alloca_once(builder, kind) for _ in targets]  # type: ignore[no-untyped-call]
        for target, register in zip(targets, registers, strict=True):
            builder.store(builder.load(target, align=1), register)
        first = builder.mul(bin_, positions)
        with loop(builder, rows.shape[0]) as leaf, loop(builder, positions) as slot:
            place = builder.add(first, slot)
            address = rows.at(kind, leaf, place, offset)
            prefetch(builder, builder.gep(builder.bitcast(address, I8.as_pointer()), [I64(AHEAD_BYTES)]), FIRST_LEVEL)
            row = builder.load(address, align=1)
            for query, register in enumerate(registers):
                mask = builder.load(masks.at(I32, leaf, place, query), align=4)
                chosen = builder.and_(row, _fill(builder, kind, mask))
                builder.store(builder.xor(builder.load(register), chosen), register)
        for target, register in zip(targets, registers, strict=True):
            builder.store(builder.load(register), target, align=1)


def _deliver_lanes(builder: Builder, tile: _Array, answers: _Array, lane: int) -> None:
    kind = _lane_type(lane)
    queries, bins, row_bytes = answers.shape
    with loop(builder, queries) as query, loop(builder, bins) as bin_, loop(builder, tile.shape[1]) as part:
        value = builder.load(tile.at(kind, bin_, part, query), align=1)
        builder.store(value, answers.at(kind, query, bin_, _offset(builder, part, lane, row_bytes)), align=1)


def _lane_type(lane: int) -> Any:
    element = min(lane, 4)
    return ir.VectorType(ir.IntType(8 * element), lane // element)


def _offset(builder: Builder, part: Value, lane: int, row_bytes: Value) -> Value:
    """Where a lane begins in its row: the last one ends where the row does."""
    regular, last = builder.mul(part, I64(lane)), builder.sub(row_bytes, I64(lane))
    return builder.select(builder.icmp_signed("<", regular, last), regular, last)


def _fill(builder: Builder, kind: Any, mask: Value) -> Value:
    """A lane of copies of a 32-bit mask, cut to the lane's elements."""
    element = mask if kind.element == I32 else builder.trunc(mask, kind.element)
    vector = builder.insert_element(ir.Constant(kind, ir.Undefined), element, I32(0))
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(I32, kind.count), None))


def prefetch(builder: Builder, pointer: Value, level: int) -> None:
    """Ask for a cache line, into the first level's cache (3) or the second one's (2); past an array this is nothing."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
    builder.call(function, [pointer, I32(0), I32(level), I32(1)])
