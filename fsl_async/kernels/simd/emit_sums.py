"""What sums in a ring become: LLVM code on vectors of blocks.

A ring is named by the bits of its elements, 32, 64 or 128. Conversion and addition have about as many vector operations
as AES has rounds, and they compete with it: an operation less for each register is time. So AVX-512, whose registers
have masks, has forms of its own here (`docs/adr/0025`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from fsl_async.kernels.simd.emit import (
    I32,
    I64,
    REGISTER_WORDS,
    WIDE_WORDS,
    control_mask,
    cut,
    join,
    shuffle,
)

Builder = Any
Value = Any

REGISTER_BITS = 64 * REGISTER_WORDS
BLOCK_BITS = 128


def add(builder: Builder, bits: int, left: Value, right: Value) -> Value:
    """Elementwise sums. In Z_2^128 a carry moves from the low word to the high one."""
    if bits < BLOCK_BITS:
        return _add_elements(builder, bits, left, right)
    if left.type.count < WIDE_WORDS:
        return _add_by_logic(builder, left, right)
    pieces = zip(cut(builder, left, REGISTER_WORDS), cut(builder, right, REGISTER_WORDS), strict=True)
    return join(builder, [_carry(builder, a, builder.add(a, b)) for a, b in pieces])


def add_chosen(builder: Builder, bits: int, left: Value, right: Value, chooser: Value) -> Value:
    """`add` where the chooser's block has its control bit set, and the left block elsewhere."""
    if left.type.count < WIDE_WORDS:
        return add(builder, bits, left, builder.and_(control_mask(builder, chooser), right))
    pieces = zip(*(cut(builder, vector, REGISTER_WORDS) for vector in (left, right, chooser)), strict=True)
    return join(builder, [_add_masked(builder, bits, *piece) for piece in pieces])


def _add_elements(builder: Builder, bits: int, left: Value, right: Value) -> Value:
    kind = ir.VectorType(ir.IntType(bits), left.type.count * I64.width // bits)
    total = builder.add(builder.bitcast(left, kind), builder.bitcast(right, kind))
    return builder.bitcast(total, left.type)


def _add_by_logic(builder: Builder, left: Value, right: Value) -> Value:
    """The carry out of a word is the highest bit of a & b | (a | b) & ~(a + b)."""
    total = builder.add(left, right)
    count = left.type.count
    either, both = builder.or_(left, right), builder.and_(left, right)
    overflow = builder.or_(both, builder.and_(either, builder.not_(total)))
    carry = builder.lshr(overflow, ir.Constant(left.type, [63] * count))
    zeros = ir.Constant(left.type, [0] * count)
    places = [place for index in range(0, count, 2) for place in (count, index)]
    moved = builder.shuffle_vector(carry, zeros, ir.Constant(ir.VectorType(I32, count), places))
    return builder.add(total, moved)


def _add_masked(builder: Builder, bits: int, left: Value, right: Value, chooser: Value) -> Value:
    """One register: the control bits become a mask under which elements are added; elsewhere there is no carry."""
    element = min(bits, I64.width)
    kind = ir.VectorType(ir.IntType(element), REGISTER_BITS // element)
    words, addends, blocks = (builder.bitcast(value, kind) for value in (left, right, chooser))
    in_block = BLOCK_BITS // element
    lowest = shuffle(builder, blocks, [index // in_block * in_block for index in range(kind.count)])
    ones, zeros = (ir.Constant(kind, [value] * kind.count) for value in (1, 0))
    chosen = builder.icmp_unsigned("!=", builder.and_(lowest, ones), zeros)
    total = builder.bitcast(builder.select(chosen, builder.add(words, addends), words), left.type)
    return _carry(builder, left, total) if bits == BLOCK_BITS else total


def _carry(builder: Builder, left: Value, total: Value) -> Value:
    """Sums of words, with the carries of low words as a mask, moved up by one, under which high words grow by one.

    The empty assembly hides from LLVM that the addend is 1: it would turn the masked addition back into two
    instructions that compete with AES, and the pass would take a quarter longer.
    """
    flags = ir.VectorType(ir.IntType(1), REGISTER_WORDS)
    low_words = ir.Constant(flags, [1, 0] * (REGISTER_WORDS // 2))
    carried = builder.and_(builder.icmp_unsigned("<", total, left), low_words)
    above = ir.Constant(ir.VectorType(I32, REGISTER_WORDS), [REGISTER_WORDS, *range(REGISTER_WORDS - 1)])
    carried = builder.shuffle_vector(carried, ir.Constant(flags, [0] * REGISTER_WORDS), above)
    ones = ir.Constant(total.type, [1] * REGISTER_WORDS)
    one = builder.asm(ir.FunctionType(total.type, [total.type]), "", "=v,0", [ones], False)
    return builder.select(carried, builder.add(total, one), total)
