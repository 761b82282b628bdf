"""The compiled forms of the vector vocabulary, and how kernels are compiled.

Each function of `vectors` gets a rule for the type of its result and one for the code it becomes. The code is put
straight where the function is called, so that a vector never leaves its registers.

The compiler keeps compiled kernels on disk, next to each kernel's file, and notices changes in that file alone: after a
change to this module, to `emit`, `emit_sums` or `passes`, remove the `__pycache__` folder beside them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba import extending as numba_extending
from numba.core import types as numba_types

from fsl_async.kernels.simd import emit, emit_carryless, emit_sums, vectors
from fsl_async.kernels.simd.isa import isa_of

Function = TypeVar("Function", bound=Callable[..., Any])

# The compiler's own annotations are partial; its values are typed here as what they are, any.
extending: Any = numba_extending
types: Any = numba_types
Type = Any
Context = Any
Builder = Any
Signature = Any
Value = Any
Values = Any


def compiled(function: Function) -> Function:
    """Compile a kernel on first use, keep it on disk, and let other threads run while it does."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def compiled_inline(function: Function) -> Function:
    """Compile a part of a kernel, always inlined: vectors stay in registers, and no pass begins with a call.

    A call pushes every field of every tuple of arrays, some eighty words; for a row of 512 blocks that took a tenth of
    the pass.
    """
    return cast(Function, numba.njit(forceinline=True)(function))


class VectorType(types.Type):  # type: ignore[misc]
    """The compiler's type of a vector of `count` blocks."""

    def __init__(self, count: int) -> None:
        self.count = count
        super().__init__(f"Vector({count})")


@extending.register_model(VectorType)
class _VectorModel(extending.models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, ir.VectorType(emit.I64, 2 * kind.count))


def _vector(keys: Type) -> VectorType:
    return VectorType(isa_of(keys.instance_class).lanes)


def _lower(function: Callable[..., Any], result: Callable[..., Type], *, parameters: int) -> Callable[..., Any]:
    """Decorate what generates a function's code; `result` gives its type and must name the same parameters."""
    extending.type_callable(function)(lambda context: result)
    return cast(Callable[..., Any], extending.lower_builtin(function, *[types.Any] * parameters))


def _address(context: Context, builder: Builder, signature: Signature, values: Values, argument: int) -> Value:
    """The address of a block: argument `argument` is the row and the next one the block's index."""
    kind, index = signature.args[argument], values[argument + 1]
    data = context.make_array(kind)(context, builder, values[argument]).data
    place = context.cast(builder, index, signature.args[argument + 1], types.intp)
    return builder.gep(data, [builder.mul(place, ir.Constant(place.type, 2))])


def _vector_address(context: Context, builder: Builder, address: Value, kind: VectorType) -> Value:
    return builder.bitcast(address, context.get_value_type(kind).as_pointer())


def _schedule(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    """The address of the round keys; keys are the first argument."""
    kind = signature.args[0].types[0]
    return context.make_array(kind)(context, builder, builder.extract_value(values[0], 0)).data


# Rows


@_lower(vectors.lanes, lambda keys: types.intp, parameters=1)
def _lanes(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return context.get_constant(types.intp, isa_of(signature.args[0].instance_class).lanes)


@_lower(vectors.load, lambda keys, row, index: _vector(keys), parameters=3)
def _load(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    address = _address(context, builder, signature, values, 1)
    return builder.load(_vector_address(context, builder, address, signature.return_type), align=8)


@_lower(vectors.store, lambda row, index, vector: types.none, parameters=3)
def _store(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    address = _address(context, builder, signature, values, 0)
    builder.store(values[2], _vector_address(context, builder, address, signature.args[2]), align=8)
    return context.get_dummy_value()


@_lower(vectors.load_part, lambda keys, row, index, count: _vector(keys), parameters=4)
def _load_part(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    address = _address(context, builder, signature, values, 1)
    count = context.cast(builder, values[3], signature.args[3], types.intp)
    return emit.load_part(builder, address, count, signature.return_type.count)


@_lower(vectors.store_part, lambda row, index, vector, count: types.none, parameters=4)
def _store_part(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    address = _address(context, builder, signature, values, 0)
    count = context.cast(builder, values[3], signature.args[3], types.intp)
    emit.store_part(builder, address, count, values[2])
    return context.get_dummy_value()


@_lower(vectors.store_highs, lambda row, index, vector: types.none, parameters=3)
def _store_highs(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    emit.store_highs(builder, _address(context, builder, signature, values, 0), values[2])
    return context.get_dummy_value()


@_lower(vectors.prefetch, lambda keys, row, index: types.none, parameters=3)
def _prefetch(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    address = _address(context, builder, signature, values, 1)
    emit.prefetch(builder, address, isa_of(signature.args[0].instance_class).lanes)
    return context.get_dummy_value()


@_lower(vectors.repeat, lambda keys, low, high: _vector(keys), parameters=3)
def _repeat(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    words = [context.cast(builder, values[i], signature.args[i], types.int64) for i in (1, 2)]
    return emit.repeat(builder, words, signature.return_type.count)


@_lower(vectors.repeat_block, lambda keys, row, index: _vector(keys), parameters=3)
def _repeat_block(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return emit.broadcast(builder, _address(context, builder, signature, values, 1), signature.return_type.count)


# AES


@_lower(vectors.encrypt_vector, lambda keys, vector: vector, parameters=2)
def _encrypt(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    schedule = _schedule(context, builder, signature, values)
    return emit.encrypt(builder, isa_of(signature.args[0].instance_class), schedule, values[1])


@_lower(vectors.hash_vector, lambda keys, vector: vector, parameters=2)
def _hash(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    orthomorphism = emit.orthomorphism(builder, values[1])
    schedule = _schedule(context, builder, signature, values)
    return emit.encrypt_onto(builder, isa_of(signature.args[0].instance_class), schedule, orthomorphism)


@_lower(vectors.multiply_halves, lambda multiplier, vector: vector, parameters=2)
def _multiply_halves(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return emit_carryless.products_of_halves(builder, signature.args[0].instance_class, values[1])


# Bits


@_lower(vectors.control_mask, lambda vector: vector, parameters=1)
def _control_mask(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return emit.control_mask(builder, values[0])


@_lower(vectors.bits_at, lambda vector, place: types.int64, parameters=2)
def _bits_at(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return emit.bits_at(builder, values[0], context.cast(builder, values[1], signature.args[1], types.int64))


@extending.lower_builtin(operator.xor, VectorType, VectorType)  # type: ignore[untyped-decorator]
def _xor(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return builder.xor(*values)


@extending.lower_builtin(operator.and_, VectorType, VectorType)  # type: ignore[untyped-decorator]
def _and(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return builder.and_(*values)


@extending.type_callable(operator.xor)  # type: ignore[untyped-decorator]
@extending.type_callable(operator.and_)  # type: ignore[untyped-decorator]
def _bitwise_result(context: Context) -> Callable[..., Type]:
    def result(left: Type, right: Type) -> Type:
        return left if isinstance(left, VectorType) and left == right else None

    return result


# Rings


@_lower(vectors.add, lambda ring, left, right: left, parameters=3)
def _add(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return emit_sums.add(builder, _RING_BITS[signature.args[0].instance_class], *values[1:])


@_lower(vectors.add_chosen, lambda ring, left, right, chooser: left, parameters=4)
def _add_chosen(context: Context, builder: Builder, signature: Signature, values: Values) -> Value:
    return emit_sums.add_chosen(builder, _RING_BITS[signature.args[0].instance_class], *values[1:])


_RING_BITS: dict[type[vectors.Ring], int] = {vectors.Ring32: 32, vectors.Ring64: 64, vectors.Ring128: 128}
