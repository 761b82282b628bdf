"""What each instruction set turns AES into: LLVM code on vectors of blocks.

A vector holds `lanes` blocks as <2·lanes x i64>. It is cut into registers of the set's own width, every round is
applied to all registers before the next round begins (an AES instruction takes several cycles but a new one starts
every cycle), and the registers are joined again. Nothing here branches or indexes memory by the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils as numba_cgutils

from fsl_async.kernels.simd import circuit
from fsl_async.kernels.simd.isa import AesniKeys, Armv8Keys, Isa, Keys, Vaes256Keys, Vaes512Keys

cgutils: Any = numba_cgutils
Builder = Any
Value = Any

I8 = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
BYTES = ir.VectorType(I8, 16)
ROUNDS = circuit.ROUNDS
BLOCK_BYTES = 16
LINE_BYTES = 64
# Vectors of 16 blocks exist on AVX-512 only, where a register has eight words and a mask register a bit for each.
WIDE_WORDS = 32
REGISTER_WORDS = 8


def shuffle(builder: Builder, vector: Value, lanes: Sequence[int]) -> Value:
    """The elements of a vector at fixed places, in their new order."""
    mask = ir.Constant(ir.VectorType(I32, len(lanes)), list(lanes))
    return builder.shuffle_vector(vector, ir.Constant(vector.type, ir.Undefined), mask)


def constant(lanes: int, low: int, high: int) -> Value:
    """A vector that repeats one known block."""
    return ir.Constant(ir.VectorType(I64, 2 * lanes), [low, high] * lanes)


def broadcast(builder: Builder, pointer: Value, lanes: int) -> Value:
    """A vector that repeats the block at an address."""
    block = builder.load(builder.bitcast(pointer, ir.VectorType(I64, 2).as_pointer()), align=8)
    return shuffle(builder, block, [0, 1] * lanes)


def repeat(builder: Builder, words: Sequence[Value], lanes: int) -> Value:
    """A vector that repeats the block of two words."""
    block = ir.Constant(ir.VectorType(I64, 2), ir.Undefined)
    for place, word in enumerate(words):
        block = builder.insert_element(block, word, I32(place))
    return shuffle(builder, block, [0, 1] * lanes)


def load_part(builder: Builder, address: Value, count: Value, lanes: int) -> Value:
    """The first `count` of a vector's blocks, zeros in place of the others; a whole vector takes the short way."""
    whole = ir.VectorType(I64, 2 * lanes)
    buffer = cgutils.alloca_once_value(builder, constant(lanes, 0, 0))
    with builder.if_else(_is_whole(builder, count, lanes), likely=True) as (then, otherwise):
        with then:
            builder.store(builder.load(builder.bitcast(address, whole.as_pointer()), align=8), buffer)
        with otherwise:
            builder.store(constant(lanes, 0, 0), buffer)
            cgutils.raw_memcpy(builder, buffer, address, count, BLOCK_BYTES)
    return builder.load(buffer)


def store_part(builder: Builder, address: Value, count: Value, vector: Value) -> None:
    """Write the first `count` of a vector's blocks; a whole vector takes the short way."""
    with builder.if_else(_is_whole(builder, count, vector.type.count // 2), likely=True) as (then, otherwise):
        with then:
            builder.store(vector, builder.bitcast(address, vector.type.as_pointer()), align=8)
        with otherwise:
            cgutils.raw_memcpy(builder, address, cgutils.alloca_once_value(builder, vector), count, BLOCK_BYTES)


def store_highs(builder: Builder, address: Value, vector: Value) -> None:
    """Write the high word of every block, side by side."""
    words = shuffle(builder, vector, range(1, vector.type.count, 2))
    builder.store(words, builder.bitcast(address, words.type.as_pointer()), align=8)


def _is_whole(builder: Builder, count: Value, lanes: int) -> Value:
    return builder.icmp_signed("==", count, ir.Constant(count.type, lanes))


def prefetch(builder: Builder, address: Value, lanes: int) -> None:
    """Ask for a vector's cache lines, into the second-level cache."""
    address = builder.bitcast(address, I8.as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type, I32, I32, I32])
    function = builder.module.declare_intrinsic("llvm.prefetch", [address.type], kind)
    for offset in range(0, lanes * BLOCK_BYTES, LINE_BYTES):
        builder.call(function, [builder.gep(address, [I32(offset)]), I32(0), I32(2), I32(1)])


# Bits


def orthomorphism(builder: Builder, vector: Value) -> Value:
    """σ(hi‖lo) = (hi ^ lo ‖ hi) of every block."""
    count = vector.type.count
    swapped = shuffle(builder, vector, [index ^ 1 for index in range(count)])
    if count >= WIDE_WORDS:
        return _xor_high(builder, swapped, vector)
    return builder.xor(swapped, builder.and_(vector, constant(count // 2, 0, -1)))


def _xor_high(builder: Builder, left: Value, right: Value) -> Value:
    """The XOR with high words alone, as one ternary operation a register; of & and ^ LLVM would make two."""
    keep = constant(REGISTER_WORDS // 2, 0, -1)
    kind = ir.FunctionType(keep.type, [keep.type] * 3 + [I32])
    name = "llvm.x86.avx512.pternlog.q.512"
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    pairs = zip(cut(builder, left, REGISTER_WORDS), cut(builder, right, REGISTER_WORDS), strict=True)
    return join(builder, [builder.call(function, [*pair, keep, I32(_XOR_OF_AND)]) for pair in pairs])


# The truth table of a ^ (b & c).
_XOR_OF_AND = 0x78


def control_mask(builder: Builder, vector: Value) -> Value:
    """The negative of every block's lowest bit, in both of its words."""
    count = vector.type.count
    low = shuffle(builder, vector, [index & ~1 for index in range(count)])
    return builder.sub(constant(count // 2, 0, 0), builder.and_(low, constant(count // 2, 1, 1)))


def bits_at(builder: Builder, vector: Value, place: Value) -> Value:
    """One bit of every low word, side by side in one word."""
    low = shuffle(builder, vector, range(0, vector.type.count, 2))
    amount = builder.insert_element(ir.Constant(low.type, ir.Undefined), place, I32(0))
    moved = builder.lshr(low, shuffle(builder, amount, [0] * low.type.count))
    flags = builder.trunc(moved, ir.VectorType(ir.IntType(1), low.type.count))
    return builder.zext(builder.bitcast(flags, ir.IntType(low.type.count)), I64)


# AES


def encrypt(builder: Builder, isa: Isa, schedule: Value, vector: Value) -> Value:
    """AES-128 of every block; `schedule` points to the instruction set's round keys."""
    registers = cut(builder, vector, 2 * isa.register)
    round_keys = _RoundKeys(builder, schedule, registers[0].type)
    last = round_keys[ROUNDS]
    return join(builder, _ROUNDS[isa.keys](builder, round_keys, registers, [last] * len(registers)))


def encrypt_onto(builder: Builder, isa: Isa, schedule: Value, vector: Value) -> Value:
    """AES-128 of every block, XORed with the block: it joins the last round key while AES is still at work."""
    registers = cut(builder, vector, 2 * isa.register)
    round_keys = _RoundKeys(builder, schedule, registers[0].type)
    last = round_keys[ROUNDS]
    lasts = [builder.xor(last, register) for register in registers]
    return join(builder, _ROUNDS[isa.keys](builder, round_keys, registers, lasts))


class _RoundKeys:
    """Round keys, loaded when they are needed: most sets have fewer registers than two schedules fill."""

    def __init__(self, builder: Builder, schedule: Value, register: Any) -> None:
        self._builder = builder
        self.pointer = builder.bitcast(schedule, register.as_pointer())

    def __getitem__(self, index: int | Value) -> Value:
        place = ir.Constant(I32, index) if isinstance(index, int) else index
        pointer = self._builder.gep(self.pointer, [place])
        return self._builder.load(pointer, align=8)


def cut(builder: Builder, vector: Value, words: int) -> list[Value]:
    """A vector's registers, of so many words each."""
    return [shuffle(builder, vector, range(start, start + words)) for start in range(0, vector.type.count, words)]


def join(builder: Builder, registers: list[Value]) -> Value:
    """The inverse of `cut`."""
    while len(registers) > 1:
        count = 2 * registers[0].type.count
        mask = ir.Constant(ir.VectorType(I32, count), list(range(count)))
        pairs = zip(registers[::2], registers[1::2], strict=True)
        registers = [builder.shuffle_vector(left, right, mask) for left, right in pairs]
    return registers[0]


# Rounds of several registers under the same keys but the last, of which every register has its own.
_Rounds = Callable[[Builder, _RoundKeys, list[Value], list[Value]], list[Value]]


def _x86(suffix: str) -> _Rounds:
    """AESENC of one register width; its last round adds the key, its first key is added before."""

    def rounds(builder: Builder, keys: _RoundKeys, states: list[Value], lasts: list[Value]) -> list[Value]:
        states = [builder.xor(state, keys[0]) for state in states]
        for index in range(1, ROUNDS):
            states = _each(builder, "llvm.x86.aesni.aesenc" + suffix, states, [keys[index]] * len(states))
        return _each(builder, "llvm.x86.aesni.aesenclast" + suffix, states, lasts)

    return rounds


def _armv8(builder: Builder, keys: _RoundKeys, states: list[Value], lasts: list[Value]) -> list[Value]:
    """AESE adds its key first and mixes no columns; AESMC does."""
    states = [builder.bitcast(state, BYTES) for state in states]
    for index in range(ROUNDS):
        key = builder.bitcast(keys[index], BYTES)
        states = _each(builder, "llvm.aarch64.crypto.aese", states, [key] * len(states))
        if index < ROUNDS - 1:
            states = _each(builder, "llvm.aarch64.crypto.aesmc", states)
    return [builder.xor(builder.bitcast(state, last.type), last) for state, last in zip(states, lasts, strict=True)]


def _each(builder: Builder, name: str, *operands: list[Value]) -> list[Value]:
    register = operands[0][0].type
    kind = ir.FunctionType(register, [register] * len(operands))
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    return [builder.call(function, values) for values in zip(*operands, strict=True)]


_ROUNDS: dict[type[Keys], _Rounds] = {
    Vaes512Keys: _x86(".512"),
    Vaes256Keys: _x86(".256"),
    AesniKeys: _x86(""),
    Armv8Keys: _armv8,
}
