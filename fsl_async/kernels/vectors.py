"""Vectors of blocks: the vocabulary in which the kernels are written.

A vector is `lanes` blocks that a kernel handles at once. Compiled, it is a value of LLVM that lives in registers; in
plain Python it is a numpy array of shape (lanes, 2), and each function below says in its Python body what its
compiled form does, so that every kernel also runs, slowly, without a compiler.

Rules: no function branches on or indexes by the blocks' contents; rows are C-contiguous uint64 arrays of shape
(n, 2), and a row is read and written in whole vectors (kernels pad their working memory).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic, overload

from fsl_async.kernels import circuit, emit
from fsl_async.kernels.isa import ISAS, Isa, Keys

__all__ = [
    "RING_128",
    "RING_32",
    "RING_64",
    "Blocks",
    "Ring",
    "Vector",
    "add",
    "bits_at",
    "compiled",
    "compiled_inline",
    "control_mask",
    "encrypt_vector",
    "hash_vector",
    "lanes",
    "load",
    "load_part",
    "prefetch",
    "repeat",
    "repeat_block",
    "spread_bits",
    "store",
    "store_part",
]

Blocks = npt.NDArray[np.uint64]
Vector = npt.NDArray[np.uint64]
Function = TypeVar("Function", bound=Callable[..., Any])

_BY_KEYS: dict[type, Isa] = {isa.keys: isa for isa in ISAS}


def compiled(function: Function) -> Function:
    """Compile a kernel on first use, keep it on disk, and let other threads run while it does."""
    return cast(Function, numba.njit(cache=True, nogil=True, boundscheck=False)(function))


def compiled_inline(function: Function) -> Function:
    """Compile a part of a kernel that handles vectors: always inlined, so that they stay in registers."""
    return cast(Function, numba.njit(forceinline=True, boundscheck=False)(function))


class VectorType(types.Type):  # type: ignore[misc]
    """The compiler's type of a vector of `lanes` blocks."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"Vector({count})")


@register_default(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, ir.VectorType(emit.I64, 2 * kind.count))


def _isa_of(keys: Any) -> Isa:
    return _BY_KEYS[keys.instance_class]


def _vector_of(keys: Any) -> VectorType:
    return VectorType(_isa_of(keys).lanes)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any = None) -> Any:
    """The address of block `index` of an array of blocks."""
    data = context.make_array(kind)(context, builder, array).data
    if index is None:
        return data
    return builder.gep(data, [builder.mul(index, ir.Constant(index.type, 2))])


def _primitive(function: Callable[..., Any], compile_as: Callable[..., Any]) -> None:
    """Give a Python function its compiled form, always inlined: a vector must stay in registers."""
    compile_as.__annotations__.clear()  # the compiler compares them with those of the lambda it returns
    overload(function, jit_options={"forceinline": True, "boundscheck": False})(compile_as)


# Reading and writing rows


def lanes(keys: Keys) -> int:
    """How many blocks a vector holds with these keys; a constant in compiled code."""
    return _BY_KEYS[type(keys)].lanes


def _lanes(keys: Any) -> Any:
    count = _isa_of(keys).lanes
    return lambda keys: count


def load(keys: Keys, row: Blocks, index: int) -> Vector:
    """The vector that begins at block `index` of a row."""
    return row[index : index + lanes(keys)].copy()


@intrinsic  # type: ignore[untyped-decorator]
def _emit_load(typing: Any, keys: Any, row: Any, index: Any) -> Any:
    vector = _vector_of(keys)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = _address(context, builder, signature.args[1], values[1], values[2])
        return builder.load(builder.bitcast(address, context.get_value_type(vector).as_pointer()), align=8)

    return vector(keys, row, types.intp), generate


def store(row: Blocks, index: int, vector: Vector) -> None:
    """Write a vector to a row, from block `index` on."""
    row[index : index + len(vector)] = vector


@intrinsic  # type: ignore[untyped-decorator]
def _emit_store(typing: Any, row: Any, index: Any, vector: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = _address(context, builder, signature.args[0], values[0], values[1])
        builder.store(values[2], builder.bitcast(address, values[2].type.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(row, types.intp, vector), generate


def load_part(keys: Keys, row: Blocks, index: int, count: int) -> Vector:
    """`load` near a row's end: `count` blocks, fewer than a vector's, and zeros after them."""
    part = np.zeros((lanes(keys), 2), dtype=np.uint64)
    part[:count] = row[index : index + count]
    return part


@intrinsic  # type: ignore[untyped-decorator]
def _emit_load_part(typing: Any, keys: Any, row: Any, index: Any, count: Any) -> Any:
    vector = _vector_of(keys)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        buffer = cgutils.alloca_once_value(builder, emit.constant(vector.count, 0, 0))
        address = _address(context, builder, signature.args[1], values[1], values[2])
        cgutils.raw_memcpy(builder, buffer, address, values[3], 16)
        return builder.load(buffer)

    return vector(keys, row, types.intp, types.intp), generate


def store_part(row: Blocks, index: int, vector: Vector, count: int) -> None:
    """`store` near a row's end: the first `count` blocks, fewer than a vector's."""
    row[index : index + count] = vector[:count]


@intrinsic  # type: ignore[untyped-decorator]
def _emit_store_part(typing: Any, row: Any, index: Any, vector: Any, count: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        buffer = cgutils.alloca_once_value(builder, values[2])
        address = _address(context, builder, signature.args[0], values[0], values[1])
        cgutils.raw_memcpy(builder, address, buffer, values[3], 16)
        return context.get_dummy_value()

    return types.void(row, types.intp, vector, types.intp), generate


def prefetch(row: Blocks, index: int) -> None:
    """Ask for the memory of a block before it is needed; has no effect on values."""


@intrinsic  # type: ignore[untyped-decorator]
def _emit_prefetch(typing: Any, row: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = _address(context, builder, signature.args[0], values[0], values[1])
        address = builder.bitcast(address, ir.IntType(8).as_pointer())
        kinds = [ir.IntType(32)] * 3
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [address.type], ir.FunctionType(ir.VoidType(), [address.type, *kinds])
        )
        builder.call(function, [address, *(kinds[0](value) for value in (1, 2, 1))])
        return context.get_dummy_value()

    return types.void(row, types.intp), generate


_primitive(lanes, _lanes)
_primitive(load, lambda keys, row, index: lambda keys, row, index: _emit_load(keys, row, index))
_primitive(store, lambda row, index, vector: lambda row, index, vector: _emit_store(row, index, vector))
_primitive(
    load_part, lambda keys, row, index, count: lambda keys, row, index, count: _emit_load_part(keys, row, index, count)
)
_primitive(
    store_part,
    lambda row, index, vector, count: lambda row, index, vector, count: _emit_store_part(row, index, vector, count),
)
_primitive(prefetch, lambda row, index: lambda row, index: _emit_prefetch(row, index))


# AES


def encrypt_vector(keys: Keys, vector: Vector) -> Vector:
    """AES-128 of every block."""
    return circuit.encrypt(keys.schedule[:, :2], vector)


@intrinsic  # type: ignore[untyped-decorator]
def _emit_encrypt(typing: Any, keys: Any, vector: Any) -> Any:
    isa = _isa_of(keys)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return emit.encrypt(builder, isa, _schedule(context, builder, signature.args[0], values[0]), values[1])

    return vector(keys, vector), generate


def _schedule(context: Any, builder: Any, kind: Any, keys: Any) -> Any:
    return _address(context, builder, kind.types[0], builder.extract_value(keys, 0))


def hash_vector(keys: Keys, vector: Vector) -> Vector:
    """H(x) = AES(sigma(x)) ^ sigma(x), sigma(hi‖lo) = (hi ^ lo ‖ hi) (Guo, Katz, Wang, Yu 2019)."""
    orthomorphism = np.stack([vector[:, 1], vector[:, 0] ^ vector[:, 1]], axis=1)
    return encrypt_vector(keys, orthomorphism) ^ orthomorphism


@intrinsic  # type: ignore[untyped-decorator]
def _emit_hash(typing: Any, keys: Any, vector: Any) -> Any:
    isa = _isa_of(keys)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        swapped = emit.shuffle(builder, values[1], _swap(vector.count))
        high = builder.and_(values[1], emit.constant(vector.count, 0, -1))
        orthomorphism = builder.xor(swapped, high)
        schedule = _schedule(context, builder, signature.args[0], values[0])
        return builder.xor(emit.encrypt(builder, isa, schedule, orthomorphism), orthomorphism)

    return vector(keys, vector), generate


def _swap(count: int) -> list[int]:
    return [index ^ 1 for index in range(2 * count)]


_primitive(encrypt_vector, lambda keys, vector: lambda keys, vector: _emit_encrypt(keys, vector))
_primitive(hash_vector, lambda keys, vector: lambda keys, vector: _emit_hash(keys, vector))


# Bits


def control_mask(vector: Vector) -> Vector:
    """All ones where a block's control bit (its lowest) is 1, all zeros elsewhere."""
    return np.where(vector[:, :1] & np.uint64(1), ~np.uint64(0), np.uint64(0)) | np.zeros_like(vector)


@intrinsic  # type: ignore[untyped-decorator]
def _emit_control_mask(typing: Any, vector: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        low = emit.shuffle(builder, values[0], [index & ~1 for index in range(2 * vector.count)])
        bit = builder.and_(low, emit.constant(vector.count, 1, 1))
        return builder.sub(emit.constant(vector.count, 0, 0), bit)

    return vector(vector), generate


def bits_at(vector: Vector, place: int) -> int:
    """Bit `place` (< 64) of every block, packed: block i's bit is bit i."""
    return sum(int(low >> np.uint64(place) & np.uint64(1)) << i for i, low in enumerate(vector[:, 0]))


@intrinsic  # type: ignore[untyped-decorator]
def _emit_bits_at(typing: Any, vector: Any, place: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        low = emit.shuffle(builder, values[0], range(0, 2 * vector.count, 2))
        amount = builder.insert_element(ir.Constant(low.type, ir.Undefined), values[1], ir.IntType(32)(0))
        moved = builder.lshr(low, emit.shuffle(builder, amount, [0] * vector.count))
        bits = builder.trunc(moved, ir.VectorType(ir.IntType(1), vector.count))
        return builder.zext(builder.bitcast(bits, ir.IntType(vector.count)), emit.I64)

    return types.int64(vector, types.int64), generate


def spread_bits(keys: Keys, bits: int) -> Vector:
    """The blocks 0 and 1 that `bits` spells, block i from bit i: the inverse of `bits_at`."""
    return np.array([[bits >> i & 1, 0] for i in range(lanes(keys))], dtype=np.uint64)


@intrinsic  # type: ignore[untyped-decorator]
def _emit_spread_bits(typing: Any, keys: Any, bits: Any) -> Any:
    vector = _vector_of(keys)
    count = vector.count

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        flags = builder.bitcast(builder.trunc(values[1], ir.IntType(count)), ir.VectorType(ir.IntType(1), count))
        words = builder.zext(flags, ir.VectorType(emit.I64, count))
        zeros = ir.Constant(words.type, [0] * count)
        places = [place for index in range(count) for place in (index, count)]
        return builder.shuffle_vector(words, zeros, ir.Constant(ir.VectorType(ir.IntType(32), 2 * count), places))

    return vector(keys, types.int64), generate


def repeat(keys: Keys, low: int, high: int) -> Vector:
    """A vector that repeats one block, given as two words."""
    return np.array([[low & _WORD, high & _WORD]] * lanes(keys), dtype=np.uint64)


_WORD = 2**64 - 1


@intrinsic  # type: ignore[untyped-decorator]
def _emit_repeat(typing: Any, keys: Any, low: Any, high: Any) -> Any:
    vector = _vector_of(keys)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        block = ir.Constant(ir.VectorType(emit.I64, 2), ir.Undefined)
        for place, word in enumerate(values[1:]):
            block = builder.insert_element(block, word, ir.IntType(32)(place))
        return emit.shuffle(builder, block, [0, 1] * vector.count)

    return vector(keys, types.int64, types.int64), generate


def repeat_block(keys: Keys, row: Blocks, index: int) -> Vector:
    """A vector that repeats block `index` of a row."""
    return np.repeat(row[index : index + 1], lanes(keys), axis=0)


@intrinsic  # type: ignore[untyped-decorator]
def _emit_repeat_block(typing: Any, keys: Any, row: Any, index: Any) -> Any:
    vector = _vector_of(keys)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = _address(context, builder, signature.args[1], values[1], values[2])
        return emit.broadcast(builder, address, vector.count)

    return vector(keys, row, types.intp), generate


_primitive(control_mask, lambda vector: lambda vector: _emit_control_mask(vector))
_primitive(bits_at, lambda vector, place: lambda vector, place: _emit_bits_at(vector, place))
_primitive(spread_bits, lambda keys, bits: lambda keys, bits: _emit_spread_bits(keys, bits))
_primitive(repeat, lambda keys, low, high: lambda keys, low, high: _emit_repeat(keys, low, high))
_primitive(repeat_block, lambda keys, row, index: lambda keys, row, index: _emit_repeat_block(keys, row, index))


# Arithmetic. Vectors have ^ and & in plain Python already; compiled ones get them here.


def _bitwise(instruction: str) -> Any:
    @intrinsic  # type: ignore[untyped-decorator]
    def emit_bitwise(typing: Any, left: Any, right: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return getattr(builder, instruction)(*values)

        return left(left, left), generate

    def compile_as(left: Any, right: Any) -> Any:
        if isinstance(left, VectorType) and left == right:
            return lambda left, right: emit_bitwise(left, right)
        return None

    return compile_as


_primitive(operator.xor, _bitwise("xor"))
_primitive(operator.and_, _bitwise("and_"))


class Ring32(NamedTuple):
    """Z_2^32, four elements to a block; the fields are a block of ones, one in every element."""

    low: int
    high: int


class Ring64(NamedTuple):
    """Z_2^64, two elements to a block; the fields are a block of ones."""

    low: int
    high: int


class Ring128(NamedTuple):
    """Z_2^128, one element to a block; the fields are a block of ones."""

    low: int
    high: int


Ring = Ring32 | Ring64 | Ring128
RING_32 = Ring32(2**32 + 1, 2**32 + 1)
RING_64 = Ring64(1, 1)
RING_128 = Ring128(1, 0)


def add(ring: Ring, left: Vector, right: Vector) -> Vector:
    """Elementwise sum in a ring."""
    if isinstance(ring, Ring32):
        return (left.view(np.uint32) + right.view(np.uint32)).view(np.uint64)
    total = left + right
    if isinstance(ring, Ring128):
        total[:, 1] += total[:, 0] < left[:, 0]
    return total


@intrinsic  # type: ignore[untyped-decorator]
def _emit_add(typing: Any, ring: Any, left: Any, right: Any) -> Any:
    generate_sum = _SUMS[ring.instance_class]

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return generate_sum(builder, values[1], values[2])

    return left(ring, left, right), generate


def _sum_32(builder: Any, left: Any, right: Any) -> Any:
    halves = ir.VectorType(ir.IntType(32), 2 * left.type.count)
    return builder.bitcast(builder.add(builder.bitcast(left, halves), builder.bitcast(right, halves)), left.type)


def _sum_64(builder: Any, left: Any, right: Any) -> Any:
    return builder.add(left, right)


_SUMS: dict[type, Callable[[Any, Any, Any], Any]] = {Ring32: _sum_32, Ring64: _sum_64, Ring128: emit.sum_128}
_primitive(add, lambda ring, left, right: lambda ring, left, right: _emit_add(ring, left, right))
