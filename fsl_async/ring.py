"""Z_2^l and fixed point: how real numbers become ring elements, and how exact sums come back.

Rules: an element is two's complement, little-endian; encoding rounds to the nearest (ties to even); a value that does
not fit raises and names itself and the largest that fits; nothing is clipped.

Arrays of elements have dtype uint32 (l = 32), uint64 (l = 64), or uint64 with a last axis of 2, low word first (l =
128).
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError

__all__ = ["Elements", "Ring", "float_below"]

Elements = npt.NDArray[Any]

_WORD = float(2**64)
_INT64_RANGE = float(2**63)


class Ring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Z_2^bits with `fraction_bits` binary digits behind the point.

    Args:
        bits: 32, 64 or 128.
        fraction_bits: how many of them are behind the point; 0 for integers.
    """

    bits: int
    fraction_bits: int = 0

    def __post_init__(self) -> None:
        if type(self.bits) is not int or self.bits not in (32, 64, 128):
            raise MisuseError(f"ring: bits must be 32, 64 or 128, not {self.bits!r}")
        if type(self.fraction_bits) is not int or not 0 <= self.fraction_bits < self.bits - 1:
            raise MisuseError(f"ring: fraction_bits must be from 0 to {self.bits - 2}, not {self.fraction_bits!r}")

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    def zeros(self, *shape: int) -> Elements:
        """Elements of the given shape, all 0."""
        return self.from_bytes(bytes(int(np.prod(shape)) * self.element_bytes), *shape, writable=True)

    def from_bytes(self, data: bytes | bytearray | memoryview, *shape: int, writable: bool = False) -> Elements:
        """View (or copy, if `writable`) little-endian bytes as elements of the given shape."""
        words = np.frombuffer(data, dtype="<u4" if self.bits == 32 else "<u8")
        elements = words.reshape(*shape, 2) if self.bits == 128 else words.reshape(shape)
        return elements.copy() if writable else elements

    def add(self, left: Elements, right: Elements) -> Elements:
        """Left + right in the ring."""
        total: Elements = left + right
        if self.bits == 128:
            total[..., 1] += total[..., 0] < left[..., 0]
        return total

    def negate(self, elements: Elements) -> Elements:
        """0 - elements in the ring."""
        if self.bits != 128:
            return np.asarray(0 - elements, dtype=elements.dtype)
        negative: Elements = ~elements
        negative[..., 0] += np.uint64(1)
        negative[..., 1] += negative[..., 0] == 0
        return negative

    def subtract(self, left: Elements, right: Elements) -> Elements:
        """Left - right in the ring."""
        return self.add(left, self.negate(right))

    def encode(self, values: npt.ArrayLike, largest: int, name: str = "value") -> Elements:
        """Turn floats (fixed point) or integers (taken as ring integers) into elements.

        Args:
            values: floats, or integers of any width (Python integers in an object array for 128 bits).
            largest: the largest absolute ring integer allowed.
            name: what the values are, for the error message.

        Raises:
            MisuseError: a value is not finite, or its absolute ring integer exceeds `largest`.
        """
        array = np.asarray(values)
        if array.dtype.kind == "f":
            return self._encode_floats(array.astype(np.float64), largest, name)
        if array.dtype.kind in "iuO":
            return self._encode_integers(array, largest, name)
        raise MisuseError(f"{name}: expected floats or integers, got dtype {array.dtype}")

    def decode(self, elements: Elements) -> npt.NDArray[np.float64]:
        """Turn elements into floats: the signed ring integer divided by 2**fraction_bits."""
        if self.bits == 32:
            signed = elements.view(np.int32).astype(np.float64)
        elif self.bits == 64:
            signed = elements.view(np.int64).astype(np.float64)
        else:
            signed = _signed_128_to_float(elements)
        return np.ldexp(signed, -self.fraction_bits)

    def to_integers(self, elements: Elements) -> npt.NDArray[Any]:
        """Turn elements into signed integers: int32, int64, or Python integers in an object array."""
        if self.bits == 128:
            high = elements[..., 1].view(np.int64).astype(object)
            return np.asarray(high * 2**64 + elements[..., 0].astype(object), dtype=object)
        return elements.view(np.int32 if self.bits == 32 else np.int64)

    def _encode_floats(self, array: npt.NDArray[np.float64], largest: int, name: str) -> Elements:
        if not np.isfinite(array).all():
            where = np.argwhere(~np.isfinite(array))[0].tolist()
            raise MisuseError(f"{name}: {array[tuple(where)]} at {where} is not a finite number")
        with np.errstate(over="ignore"):  # infinity does not fit either
            scaled = np.rint(np.ldexp(array, self.fraction_bits))
        self._refuse_outside(np.abs(scaled) > float_below(largest), array, largest, name)
        if self.bits != 128:
            # Not astype(uint): a negative float to an unsigned integer is undefined.
            return scaled.astype(np.int32 if self.bits == 32 else np.int64).view(f"u{self.element_bytes}")
        # Split the magnitude: the low word of a negative number has more bits than a float.
        high = np.floor(np.abs(scaled) / _WORD)
        elements = np.empty((*array.shape, 2), dtype=np.uint64)
        elements[..., 0] = np.abs(scaled) - high * _WORD
        elements[..., 1] = high
        return np.where((scaled < 0)[..., None], self.negate(elements), elements)

    def _encode_integers(self, array: npt.NDArray[Any], largest: int, name: str) -> Elements:
        if array.dtype.kind == "O" and not all(type(value) is int for value in array.flat):
            raise MisuseError(f"{name}: an array of objects may hold Python integers only")
        outside = np.asarray((array > largest) | (array < -largest), dtype=bool)
        self._refuse_outside(outside, array, largest, name)
        if self.bits != 128:
            return np.ascontiguousarray(array.astype(f"i{self.element_bytes}")).view(f"u{self.element_bytes}")
        wide = array.astype(object)
        elements = np.empty((*array.shape, 2), dtype=np.uint64)
        elements[..., 0] = wide & (2**64 - 1)
        elements[..., 1] = (wide >> 64) & (2**64 - 1)
        return elements

    def _refuse_outside(self, outside: npt.NDArray[np.bool_], array: Elements, largest: int, name: str) -> None:
        if not outside.any():
            return
        where = np.argwhere(outside)[0].tolist()
        value = array[tuple(where)]
        limit = largest if array.dtype.kind != "f" else math.ldexp(float_below(largest), -self.fraction_bits)
        raise MisuseError(
            f"{name}: {value} at {where} does not fit; the largest is {limit} "
            f"({self.bits} bits, {self.fraction_bits} of them behind the point, shared by all clients' sum)"
        )


def float_below(integer: int) -> float:
    """The largest float that is not above a positive integer."""
    nearest = float(integer)
    return nearest if int(nearest) <= integer else math.nextafter(nearest, 0.0)


def _signed_128_to_float(elements: Elements) -> npt.NDArray[np.float64]:
    low, high = elements[..., 0], elements[..., 1].view(np.int64)
    small = high == low.view(np.int64) >> 63
    # Where the number fits 64 bits, convert once: one rounding instead of two.
    return np.where(small, low.view(np.int64).astype(np.float64), high * _WORD + low.astype(np.float64))
