"""The kernel of whole-number combinations: products of limbs, added where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from fsl_async.kernels.simd.lowering import compiled

Words = npt.NDArray[np.uint64]

LIMB_BITS = 64
_LIMB = 2**LIMB_BITS - 1


def sums_of_products(coefficients: Sequence[int], columns: Words) -> list[int]:
    """Σ_c coefficients[c]·columns[c, j] for every j; uint64 (rows, columns, words), the low word first."""
    limbs = -(-max(coefficients, default=0).bit_length() // LIMB_BITS)
    packed = b"".join(coefficient.to_bytes(8 * limbs, "little") for coefficient in coefficients)
    factors = np.frombuffer(packed, dtype="<u8").reshape(len(columns), limbs)
    # One limb more takes the carries of as many rows as memory can hold.
    sums = np.zeros((columns.shape[1], limbs + columns.shape[2] + 1), dtype=np.uint64)
    add_products(factors, columns, sums)
    size, whole = 8 * sums.shape[1], sums.tobytes()
    return [int.from_bytes(whole[start : start + size], "little") for start in range(0, len(whole), size)]


@compiled
def add_products(factors: Words, words: Words, sums: Words) -> None:
    """Add every row's products to the sums.

    Args:
        factors: limbs of the rows' coefficients, lowest first; shape (rows, limbs).
        words: words of the numbers, lowest first; shape (rows, columns, words).
        sums: limbs of the columns' sums; shape (columns, limbs + words + 1).
    """
    rows, columns, per_number = words.shape
    limbs, length = factors.shape[1], sums.shape[1]
    for row in range(rows):
        for column in range(columns):
            for place in range(per_number):
                word, carry = words[row, column, place], np.uint64(0)
                for limb in range(limbs):
                    low, carry = multiply_add(factors[row, limb], word, sums[column, place + limb], carry)
                    sums[column, place + limb] = low
                for above in range(place + limbs, length):
                    low, carry = multiply_add(np.uint64(1), carry, sums[column, above], np.uint64(0))
                    sums[column, above] = low


def multiply_add(
    factor: np.uint64, word: np.uint64, addend: np.uint64, carry: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """The low and the high word of factor·word + addend + carry, which fits both."""
    total = int(factor) * int(word) + int(addend) + int(carry)
    return np.uint64(total & _LIMB), np.uint64(total >> LIMB_BITS)


@overload(multiply_add, strict=False)
def _compile_multiply_add(factor: Any, word: Any, addend: Any, carry: Any) -> Any:
    return lambda factor, word, addend, carry: _emit_multiply_add(factor, word, addend, carry)  # type: ignore[call-arg]


@intrinsic
def _emit_multiply_add(typing: Any, factor: Any, word: Any, addend: Any, carry: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        wide = ir.IntType(2 * LIMB_BITS)
        first, second, *others = (builder.zext(value, wide) for value in values)
        total = builder.mul(first, second)
        for other in others:
            total = builder.add(total, other)
        low = builder.trunc(total, ir.IntType(LIMB_BITS))
        high = builder.trunc(builder.lshr(total, wide(LIMB_BITS)), ir.IntType(LIMB_BITS))
        return context.make_tuple(builder, signature.return_type, [low, high])

    pair: Any = types.UniTuple
    return pair(types.uint64, 2)(*[types.uint64] * 4), generate
