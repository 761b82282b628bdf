"""What each multiplier turns carry-less products into: LLVM code on vectors of words.

The products of a vector's words with one key are two vectors: those of the words at even places, then those at odd
places, each product two words, low word first. Nothing here branches or indexes memory by the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from fsl_async.kernels.simd.carryless import (
    Multiplier,
    Pclmul,
    Pmull,
    Vpclmul256,
    Vpclmul512,
)
from fsl_async.kernels.simd.emit import BYTES, I8, I32, I64, cut, join, shuffle

Builder = Any
Value = Any
Products = tuple[list[Value], list[Value]]
"""Of words at even places and at odd ones, in registers of equal size."""

PAIR = ir.VectorType(I64, 2)

_Multiply = Callable[[Builder, Value, Sequence[Value]], Products]


def products(builder: Builder, kind: type[Multiplier], words: Value, keys: Sequence[Value]) -> Products:
    """The products of a vector's words with a key that `prepare` made ready."""
    return _MULTIPLY[kind](builder, words, keys)


def products_of_halves(builder: Builder, kind: type[Multiplier], vector: Value) -> Value:
    """The product of every block's two words, in the block's place."""
    width = _REGISTERS.get(kind, 2)
    return join(builder, [_product_of_halves(builder, kind, register) for register in cut(builder, vector, width)])


def _product_of_halves(builder: Builder, kind: type[Multiplier], register: Value) -> Value:
    if kind in _REGISTERS:
        return builder.call(_instruction(builder, register.type), [register, register, I8(_ODD)])
    key = prepare(builder, kind, builder.extract_element(register, I32(1)), 1)
    return products(builder, kind, shuffle(builder, register, [0]), key)[0][0]


def products_of_words(builder: Builder, kind: type[Multiplier], left: Value, right: Value) -> Products:
    """The products of the words at equal places of two vectors."""
    count = left.type.count
    if kind in _REGISTERS and count > 1:
        width = register_words(kind, count)
        pairs = list(zip(cut(builder, left, width), cut(builder, right, width), strict=True))
        function = _instruction(builder, pairs[0][0].type)
        evens, odds = ([builder.call(function, [*pair, I8(half)]) for pair in pairs] for half in (_EVEN, _BOTH_ODD))
        return evens, odds
    keys = [prepare(builder, kind, builder.extract_element(right, I32(place)), 1) for place in range(count)]
    made = [products(builder, kind, shuffle(builder, left, [place]), key)[0][0] for place, key in enumerate(keys)]
    return made[::2], made[1::2]


def prepare(builder: Builder, kind: type[Multiplier], key: Value, words: int) -> Sequence[Value]:
    """What every product with one key shares, for vectors of some words."""
    if kind is Pmull:
        return [key]
    return [_repeated(builder, key, register_words(kind, words))]


def register_words(kind: type[Multiplier], words: int) -> int:
    """The words of a register of products, for vectors of some words."""
    return max(2, min(words, _REGISTERS.get(kind, 2)))


def _repeated(builder: Builder, word: Value, count: int) -> Value:
    vector = builder.insert_element(ir.Constant(ir.VectorType(I64, count), ir.Undefined), word, I32(0))
    return shuffle(builder, vector, [0] * count)


# x86


_REGISTERS: dict[type[Multiplier], int] = {Vpclmul512: 8, Vpclmul256: 4, Pclmul: 2}
_INSTRUCTIONS = {8: "llvm.x86.pclmulqdq.512", 4: "llvm.x86.pclmulqdq.256", 2: "llvm.x86.pclmulqdq"}
# Which word of each pair of the first operand; of the second always the lower one, but for the last.
_EVEN, _ODD, _BOTH_ODD = 0x00, 0x01, 0x11


def _x86(builder: Builder, words: Value, keys: Sequence[Value]) -> Products:
    (key,) = keys
    register, function = key.type, _instruction(builder, key.type)
    if words.type.count == 1:
        lone = builder.extract_element(words, I32(0))
        pair = builder.insert_element(ir.Constant(PAIR, [0, 0]), lone, I32(0))
        return [builder.call(function, [pair, key, I8(_EVEN)])], []
    places = range(0, words.type.count, register.count)
    cut = [shuffle(builder, words, range(place, place + register.count)) for place in places]
    evens, odds = ([builder.call(function, [piece, key, I8(half)]) for piece in cut] for half in (_EVEN, _ODD))
    return evens, odds


def _instruction(builder: Builder, register: Any) -> Value:
    name, kind = _INSTRUCTIONS[register.count], ir.FunctionType(register, [register, register, I8])
    return builder.module.globals.get(name) or ir.Function(builder.module, kind, name)


# Armv8


def _armv8(builder: Builder, words: Value, keys: Sequence[Value]) -> Products:
    (key,) = keys
    name = "llvm.aarch64.neon.pmull64"
    function = builder.module.globals.get(name) or ir.Function(builder.module, ir.FunctionType(BYTES, [I64, I64]), name)

    def product(word: Value) -> Value:
        return builder.bitcast(builder.call(function, [word, key]), PAIR)

    return _word_by_word(builder, words, product)


def _word_by_word(builder: Builder, words: Value, product: Callable[[Value], Value]) -> Products:
    made = [product(builder.extract_element(words, I32(place))) for place in range(words.type.count)]
    return made[::2], made[1::2]


_MULTIPLY: dict[type[Multiplier], _Multiply] = {
    Vpclmul512: _x86,
    Vpclmul256: _x86,
    Pclmul: _x86,
    Pmull: _armv8,
}
