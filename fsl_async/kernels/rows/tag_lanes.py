"""What two leaves of many trees add to their answers and to a tag, a piece of the row at a time.

A row is cut into *pieces* of 8, 4, 2 or 1 words, of which one may overlap another, and a last one of 1 to 7 bytes that
counts as a word. Of each piece one pass over the rows loads it, XORs it into its bin's answer if the leaf's lowest bit
is 1, and adds its products with the leaf's key to two registers.

`absorb` has a compiled form alone; `plain.tags` computes the same. Nothing branches or indexes memory by what a leaf or
a row contains.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, overload

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.rows.lanes import address_of, cases, loop, prefetch
from fsl_async.kernels.simd import emit, emit_carryless
from fsl_async.kernels.simd.carryless import Multiplier

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
Builder: TypeAlias = Any
Value: TypeAlias = Any

WORD_BYTES = 8
PIECES = (64, 32, 16, 8)
RESTS = (1, 2, 3, 4, 5, 6, 7)
# The queries that share what neighbouring rows make; their sums fit into registers where 32 of them have 64 bytes.
QUERIES = 8


# The second-level cache: the first one has no room for the rows of another leaf beside those at work.
FETCH_LEVEL = 2
LINE_BYTES = 64
# What is fetched is cut into so many parts, which are fetched side by side: a processor that sees several pages being
# read runs ahead in all of them.
STREAMS = 8


class Rows(NamedTuple):
    """The same piece of rows that lie side by side, twice: those under one leaf and those under another.

    Attributes:
        table: the bytes of a segment of the model, flat.
        first: the piece's first byte in the first row.
        second: the same under the other leaf.
        pitch: bytes from one row to the next.
        fetched: the first byte of what is fetched from memory meanwhile; it may lie outside the table.
        also_fetched: the same of something else.
        step: bytes of both that are fetched for every row.
    """

    table: Bytes
    first: int
    second: int
    pitch: int
    fetched: int
    also_fetched: int
    step: int


def absorb(
    multiplier: Multiplier,
    size: int,
    leaves: Blocks,
    places: tuple[int, int],
    count: int,
    rows: Rows,
    answers: Words,
    sums: Words,
) -> None:
    """Add two leaves of each of `count` trees to their answers and to the sum of products.

    A leaf whose block is zero adds nothing.

    Args:
        multiplier: how to multiply.
        size: bytes of the piece.
        leaves: blocks of the leaves, flat; shape (n, 2).
        places: of the first tree's two leaves.
        count: how many trees, one row under each leaf.
        rows: the rows under the leaves.
        answers: the piece of each tree's answer, side by side; flat, XORed in place.
        sums: the products of the piece's words at even places, then of those at odd places; flat, XORed in place.
    """


def deliver_piece(size: int, pieces: Words, count: int, answers: Bytes, start: int, offset: int) -> None:
    """Copy a piece of `count` answers, as `absorb` wrote them, to rows of shape (n, row_bytes) from row `start` on."""


class KeptKeys(NamedTuple):
    """The keys of several queries' leaves over the same rows.

    Attributes:
        keys: every query's, flat.
        first: the place of the first query's key of the first row; its others follow.
        pitch: words from one query's keys to the next one's.
        under: words from a leaf's keys to the next one's; the place behind the last one of an odd number holds 0.
    """

    keys: Words
    first: int
    pitch: int
    under: int


def absorb_kept(
    multiplier: Multiplier,
    size: int,
    kept: KeptKeys,
    extent: tuple[int, int],
    rows: Rows,
    sums: Words,
    pitch: int,
) -> None:
    """Add a piece of rows times their keys, and neighbouring rows' keys times each other, to sums of QUERIES queries.

    With keys k and l of two rows v and w, k·v + l·w + k·l = (v + l)·(w + k) + v·w: one product for two rows, beside one
    that all queries share. What the keys add is the same for every word, and the caller takes it off.

    Args:
        multiplier: how to multiply.
        size: bytes of the piece.
        kept: their keys.
        extent: how many leaves, and how many rows under each.
        rows: those under the first leaf and under the next one; nothing is fetched meanwhile.
        sums: the first query's, as for `absorb`; flat, XORed in place.
        pitch: words from one query's sums to the next one's.

    Source: S. Winograd, A New Algorithm for Inner Product (1968).
    """


def words_of(size: int) -> int:
    """The words of a piece."""
    return -(-size // WORD_BYTES)


# The compiled form.


@overload(absorb, strict=False)
def _compile(
    multiplier: Any, size: Any, leaves: Any, places: Any, count: Any, rows: Any, answers: Any, sums: Any
) -> Any:
    def body(
        multiplier: Any, size: Any, leaves: Any, places: Any, count: Any, rows: Any, answers: Any, sums: Any
    ) -> None:
        sources = (rows.first, rows.second, rows.fetched, rows.also_fetched)
        strides = (rows.pitch, rows.step)
        _emit(multiplier, size, leaves, places, count, rows.table, sources, strides, answers, sums)  # type: ignore[call-arg]

    return body


@intrinsic
def _emit(
    typing: Any,
    multiplier: Any,
    size: Any,
    leaves: Any,
    places: Any,
    count: Any,
    table: Any,
    sources: Any,
    strides: Any,
    answers: Any,
    sums: Any,
) -> Any:
    kinds = (multiplier, types.intp, leaves, places, types.intp, table, sources, strides, answers, sums)

    def generate(context: Any, builder: Builder, signature: Any, values: Sequence[Value]) -> Any:
        def addresses(argument: int, offsets: Sequence[Value]) -> list[Value]:
            start = address_of(context, builder, signature.args[argument], values[argument])
            return [builder.gep(start, [offset]) for offset in offsets]

        def parts(argument: int) -> list[Value]:
            return [builder.extract_value(values[argument], i) for i in range(len(signature.args[argument]))]

        nodes = addresses(2, [builder.mul(place, emit.I64(16)) for place in parts(3)])
        rows = addresses(5, parts(6))
        targets = [addresses(argument, [emit.I64(0)])[0] for argument in (8, 9)]
        for case in cases(builder, values[1], PIECES + RESTS):
            emitter = _Piece(builder, multiplier.instance_class, case)
            emitter.pass_over(nodes, values[4], rows[:2], rows[2:], parts(7), targets)
        return context.get_dummy_value()

    return types.void(*kinds), generate


def fetch(table: Bytes, first: int, count: int) -> None:
    """Ask for `count` bytes from byte `first` on, which may lie outside the table."""


@overload(fetch, strict=False)
def _compile_fetch(table: Any, first: Any, count: Any) -> Any:
    return lambda table, first, count: _emit_fetch(table, first, count)  # type: ignore[call-arg]


@intrinsic
def _emit_fetch(typing: Any, table: Any, first: Any, count: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Sequence[Value]) -> Any:
        start = builder.gep(address_of(context, builder, signature.args[0], values[0]), [values[1]])
        lines = builder.udiv(builder.add(values[2], emit.I64(LINE_BYTES - 1)), emit.I64(LINE_BYTES))
        with loop(builder, lines) as line:
            prefetch(builder, builder.gep(start, [builder.mul(line, emit.I64(LINE_BYTES))]), FETCH_LEVEL)
        return context.get_dummy_value()

    return types.void(table, types.intp, types.intp), generate


@overload(deliver_piece, strict=False)
def _compile_deliver(size: Any, pieces: Any, count: Any, answers: Any, start: Any, offset: Any) -> Any:
    def body(size: Any, pieces: Any, count: Any, answers: Any, start: Any, offset: Any) -> None:
        pitch = answers.strides[0]
        _emit_deliver(size, pieces, count, answers, start * pitch + offset, pitch)  # type: ignore[call-arg]

    return body


@intrinsic
def _emit_deliver(typing: Any, size: Any, pieces: Any, count: Any, answers: Any, first: Any, pitch: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Sequence[Value]) -> Any:
        source, target = (address_of(context, builder, signature.args[i], values[i]) for i in (1, 3))
        target = builder.gep(target, [values[4]])
        for case in cases(builder, values[0], PIECES + RESTS):
            kind, step = _memory_type(case), WORD_BYTES * words_of(case)
            with loop(builder, values[2]) as row:
                start = builder.gep(source, [builder.mul(row, emit.I64(step))])
                piece = builder.load(builder.bitcast(start, kind.as_pointer()), align=8)
                place = builder.gep(target, [builder.mul(row, values[5])])
                builder.store(piece, builder.bitcast(place, kind.as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(types.intp, pieces, types.intp, answers, types.intp, types.intp), generate


def _memory_type(size: int) -> Any:
    """A piece as it is loaded from a row: words, or a number of a few bytes."""
    return ir.VectorType(emit.I64, size // WORD_BYTES) if size in PIECES else ir.IntType(8 * size)


@overload(absorb_kept, strict=False)
def _compile_kept(multiplier: Any, size: Any, kept: Any, extent: Any, rows: Any, sums: Any, pitch: Any) -> Any:
    def body(multiplier: Any, size: Any, kept: Any, extent: Any, rows: Any, sums: Any, pitch: Any) -> None:
        under = rows.second - rows.first
        places = (kept.first, kept.pitch, rows.first, pitch, extent[0], extent[1], rows.pitch, under, kept.under)
        _emit_kept(multiplier, size, kept.keys, rows.table, sums, places)  # type: ignore[call-arg]

    return body


@intrinsic
def _emit_kept(typing: Any, multiplier: Any, size: Any, keys: Any, table: Any, sums: Any, places: Any) -> Any:
    def generate(context: Any, builder: Builder, signature: Any, values: Sequence[Value]) -> Any:
        key_words, rows, totals = (address_of(context, builder, signature.args[i], values[i]) for i in (2, 3, 4))
        first_key, key_pitch, first, sums_pitch, *rest = (builder.extract_value(values[5], i) for i in range(9))
        source = builder.gep(rows, [first])
        sets = []
        for query in range(QUERIES):
            key = builder.add(first_key, builder.mul(emit.I64(query), key_pitch))
            total = builder.mul(emit.I64(8 * query), sums_pitch)
            sets.append((builder.gep(key_words, [builder.shl(key, emit.I64(3))]), builder.gep(totals, [total])))
        for case in cases(builder, values[1], PIECES + RESTS):
            _Piece(builder, multiplier.instance_class, case).pass_with(sets, source, _Extent(*rest))
        return context.get_dummy_value()

    return types.void(multiplier, types.intp, keys, table, sums, places), generate


class _Extent(NamedTuple):
    """Rows of several leaves inside generated code: how many, and bytes and words from one to the next."""

    leaves: Value
    count: Value
    pitch: Value
    under: Value
    keys_under: Value


class _Piece:
    """The code of one pass over the rows, for pieces of one size."""

    def __init__(self, builder: Builder, kind: type[Multiplier], size: int) -> None:
        self._builder = builder
        self._kind = kind
        self._size = size
        self._words = words_of(size)
        self._type = ir.VectorType(emit.I64, self._words)

    def pass_over(
        self,
        nodes: Sequence[Value],
        count: Value,
        sources: Sequence[Value],
        fetched: Sequence[Value],
        strides: Sequence[Value],
        targets: Sequence[Value],
    ) -> None:
        """Absorb `count` rows under each of two leaves; the strides are of sources and of what is fetched."""
        builder, (answers, sums), (pitch, step) = self._builder, targets, strides
        registers = self._registers(sums)
        self._begin(registers)
        stream = builder.mul(builder.sdiv(count, emit.I64(STREAMS)), step)
        with loop(builder, count) as tree:
            turn = builder.mul(builder.and_(tree, emit.I64(STREAMS - 1)), stream)
            ahead = builder.add(turn, builder.mul(builder.sdiv(tree, emit.I64(STREAMS)), step))
            for start in fetched:
                prefetch(builder, builder.gep(start, [ahead]), FETCH_LEVEL)
            answer = builder.gep(answers, [builder.mul(tree, emit.I64(8 * self._words))])
            pointer = builder.bitcast(answer, self._type.as_pointer())
            total = builder.load(pointer, align=8)
            for start, source in zip(nodes, sources, strict=True):
                node = builder.gep(start, [builder.mul(tree, emit.I64(16))])
                control, key = (self._word(node, 8 * place) for place in (0, 1))
                piece = self._load(builder.gep(source, [builder.mul(tree, pitch)]))
                total = builder.xor(total, self._chosen(control, piece))
                self._add(registers, piece, key)
            builder.store(total, pointer, align=8)
        self._end(registers)

    def pass_with(self, sets: Sequence[tuple[Value, Value]], source: Value, extent: _Extent) -> None:
        """Add what `absorb_kept` says to sums that stay in registers: sets are the keys and sums of each query.

        A last row without a neighbour stands for its own, with a key of 0.
        """
        builder = self._builder
        registers, of_rows = [self._registers(sums) for _, sums in sets], self._registers(sets[0][1])
        for mine in registers:
            self._begin(mine)
        for _, register in of_rows:
            builder.store(ir.Constant(register.type.pointee, None), register)
        half = builder.lshr(builder.add(extent.count, emit.I64(1)), emit.I64(1))
        with loop(builder, extent.leaves) as leaf, loop(builder, half) as pair:
            place = builder.shl(pair, emit.I64(1))
            row = builder.add(builder.mul(leaf, extent.under), builder.mul(place, extent.pitch))
            alone = builder.icmp_unsigned("==", builder.add(place, emit.I64(1)), extent.count)
            following = builder.add(row, builder.select(alone, emit.I64(0), extent.pitch))
            first, second = (self._load(builder.gep(source, [offset])) for offset in (row, following))
            self._gather(of_rows, emit_carryless.products_of_words(builder, self._kind, first, second))
            key = builder.mul(builder.add(builder.mul(leaf, extent.keys_under), place), emit.I64(WORD_BYTES))
            for (keys, _), mine in zip(sets, registers, strict=True):
                own, other = (self._every(self._word(builder.gep(keys, [key]), at)) for at in (0, WORD_BYTES))
                crossed = builder.xor(first, other), builder.xor(second, own)
                self._gather(mine, emit_carryless.products_of_words(builder, self._kind, *crossed))
        shared = [builder.load(register) for _, register in of_rows]
        for mine in registers:
            self._gather(mine, (shared, []))
            self._end(mine)

    def _gather(self, registers: list[tuple[Value, Value]], products: emit_carryless.Products) -> None:
        for (_, register), product in zip(registers, itertools.chain(*products), strict=True):
            self._builder.store(self._builder.xor(self._builder.load(register), product), register)

    def _every(self, word: Value) -> Value:
        """A piece that repeats a word."""
        vector = self._builder.insert_element(ir.Constant(self._type, ir.Undefined), word, emit.I32(0))
        return emit.shuffle(self._builder, vector, [0] * self._words)

    def _begin(self, registers: list[tuple[Value, Value]]) -> None:
        for address, register in registers:
            self._builder.store(self._builder.load(address, align=8), register)

    def _end(self, registers: list[tuple[Value, Value]]) -> None:
        for address, register in registers:
            self._builder.store(self._builder.load(register), address, align=8)

    def _add(self, registers: list[tuple[Value, Value]], piece: Value, key: Value) -> None:
        """Add a piece's products with a key."""
        prepared = emit_carryless.prepare(self._builder, self._kind, key, self._words)
        self._gather(registers, emit_carryless.products(self._builder, self._kind, piece, prepared))

    def _registers(self, sums: Value) -> list[tuple[Value, Value]]:
        """Where each register of products lies in memory, and a variable for it."""
        width = emit_carryless.register_words(self._kind, self._words)
        kind = ir.VectorType(emit.I64, width)
        pointers = [
            self._builder.bitcast(self._builder.gep(sums, [emit.I64(8 * place)]), kind.as_pointer())
            for place in range(0, 2 * self._words, width)
        ]
        return [(pointer, cgutils.alloca_once(self._builder, kind)) for pointer in pointers]  # type: ignore[no-untyped-call]

    def _word(self, address: Value, offset: int) -> Value:
        pointer = self._builder.gep(address, [emit.I64(offset)])
        return self._builder.load(self._builder.bitcast(pointer, emit.I64.as_pointer()), align=8)

    def _load(self, address: Value) -> Value:
        builder, kind = self._builder, _memory_type(self._size)
        piece = builder.load(builder.bitcast(address, kind.as_pointer()), align=1)
        if self._size in PIECES:
            return piece
        word = builder.zext(piece, emit.I64)
        return builder.insert_element(ir.Constant(self._type, ir.Undefined), word, emit.I32(0))

    def _chosen(self, control: Value, piece: Value) -> Value:
        """A piece where the control bit is 1, zeros elsewhere."""
        builder = self._builder
        mask = builder.sub(emit.I64(0), builder.and_(control, emit.I64(1)))
        vector = builder.insert_element(ir.Constant(self._type, ir.Undefined), mask, emit.I32(0))
        return builder.and_(piece, emit.shuffle(builder, vector, [0] * self._words))
