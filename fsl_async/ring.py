"""Z_2^l and fixed point: how numbers become ring elements, and how exact sums come back.

Rules: a number is encoded by its value, whatever its dtype: 1 and 1.0 give the same element, and floats are refused
where the ring has no fraction bits; integers that are elements already are marked as such (`RingIntegers`). An element
is two's complement, little-endian; encoding rounds to the nearest (ties to even); a value that does not fit raises an
error that names it and the largest that fits; nothing is clipped.

Arrays of elements have dtype uint32 (l = 32), uint64 (l = 64), or uint64 with a last axis of 2, low word first (l =
128).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError

Elements = npt.NDArray[Any]

_WORD = float(2**64)


class Ring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Z_2^bits with `fraction_bits` binary digits behind the point.

        ring = Ring(64, fraction_bits=24)
        elements = ring.encode(np.array([0.5, -1.25]), largest=2**40)       # uint64 (2,)
        ring.decode(ring.add(elements, elements))                           # [1.0, -2.5]

    Args:
        bits: 32, 64 or 128.
        fraction_bits: how many of them are behind the point; with 0, the ring is one of whole numbers and takes no
            floats.
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
        words = (*shape, 2) if self.bits == 128 else shape
        return np.zeros(words, dtype=np.uint32 if self.bits == 32 else np.uint64)

    @property
    def one(self) -> Elements:
        """The element 1, of no dimension."""
        return self.from_bytes((1).to_bytes(self.element_bytes, "little"))

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

    def encode(self, values: npt.ArrayLike | RingIntegers, largest: int, name: str = "value") -> Elements:
        """Turn numbers into elements that represent them; `RingIntegers` become elements unchanged.

        Args:
            values: floats, if the ring has fraction bits; integers of any width (Python integers in an object array for
                128 bits), which are encoded by value as floats are; or `RingIntegers`.
            largest: the largest absolute ring integer allowed.
            name: what the values are, for the error message.

        Raises:
            MisuseError: a value is not finite, or its absolute ring integer exceeds `largest`; or the values are floats
                and the ring has no fraction bits.
        """
        if isinstance(values, RingIntegers):
            return self._encode_integers(values.values, largest, 0, name)
        array = np.asarray(values)
        if array.dtype.kind == "f":
            return self._encode_floats(array.astype(np.float64), largest, name)
        if array.dtype.kind in "iuO":
            return self._encode_integers(array, largest, self.fraction_bits, name)
        raise MisuseError(f"{name}: expected floats or integers, got dtype {array.dtype}")

    def misfits(self, values: npt.NDArray[Any], largest: int) -> npt.NDArray[np.bool_]:
        """Which of the numbers `encode` would refuse: those that are not finite, or beyond `largest`."""
        if values.dtype.kind != "f":
            return _beyond(values, largest >> self.fraction_bits)
        beyond = np.abs(self._scaled(values.astype(np.float64))) > float_below(largest)
        return np.asarray(beyond | ~np.isfinite(values), dtype=bool)

    def decode(self, elements: Elements) -> npt.NDArray[Any]:
        """Turn elements into the numbers that they represent.

        Returns:
            Each number as the float64 nearest to it; without fraction bits, as the integer itself, as `to_integers`
            returns it.
        """
        if self.fraction_bits == 0:
            return self.to_integers(elements)
        signed = _signed_128_to_float(elements) if self.bits == 128 else self.to_integers(elements).astype(np.float64)
        return np.ldexp(signed, -self.fraction_bits)

    def to_integers(self, elements: Elements) -> npt.NDArray[Any]:
        """Turn elements into signed integers: int32, int64, or Python integers in an object array."""
        if self.bits == 128:
            high = elements[..., 1].view(np.int64).astype(object)
            return np.asarray(high * 2**64 + elements[..., 0].astype(object), dtype=object)
        return elements.view(np.int32 if self.bits == 32 else np.int64)

    def _encode_floats(self, array: npt.NDArray[np.float64], largest: int, name: str) -> Elements:
        if self.fraction_bits == 0 and array.size:  # an empty list is an array of floats, too
            raise MisuseError(
                f"{name}: floats need a ring with fraction bits, as Ring({self.bits}, fraction_bits="
                f"{self.bits * 3 // 8}); this one, Ring({self.bits}), takes integers only"
            )
        if not np.isfinite(array).all():
            where = np.argwhere(~np.isfinite(array))[0].tolist()
            raise MisuseError(f"{name}: {array[tuple(where)]} at {where} is not a finite number")
        scaled = self._scaled(array)
        limit = math.ldexp(float_below(largest), -self.fraction_bits)
        self._refuse_outside(np.abs(scaled) > float_below(largest), array, limit, name)
        if self.bits != 128:
            # Not astype(uint): a negative float to an unsigned integer is undefined.
            return scaled.astype(np.int32 if self.bits == 32 else np.int64).view(f"u{self.element_bytes}")
        # Split the magnitude: the low word of a negative number has more bits than a float.
        high = np.floor(np.abs(scaled) / _WORD)
        elements = np.empty((*array.shape, 2), dtype=np.uint64)
        elements[..., 0] = np.abs(scaled) - high * _WORD
        elements[..., 1] = high
        return np.where((scaled < 0)[..., None], self.negate(elements), elements)

    def _encode_integers(self, array: npt.NDArray[Any], largest: int, shift: int, name: str) -> Elements:
        """Integers × 2^shift."""
        if array.dtype.kind == "O" and not all(type(value) is int for value in array.flat):
            raise MisuseError(f"{name}: an array of objects may hold Python integers only")
        most = largest >> shift
        self._refuse_outside(_beyond(array, most), array, most, name)
        if self.bits != 128:
            return np.ascontiguousarray(array.astype(f"i{self.element_bytes}") << shift).view(f"u{self.element_bytes}")
        wide = array.astype(object) << shift
        elements = np.empty((*array.shape, 2), dtype=np.uint64)
        elements[..., 0] = wide & (2**64 - 1)
        elements[..., 1] = (wide >> 64) & (2**64 - 1)
        return elements

    def _scaled(self, array: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        with np.errstate(over="ignore"):  # infinity does not fit either
            scaled: npt.NDArray[np.float64] = np.rint(np.ldexp(array, self.fraction_bits))
        return scaled

    def _refuse_outside(self, outside: npt.NDArray[np.bool_], array: npt.NDArray[Any], limit: float, name: str) -> None:
        if not outside.any():
            return
        where = np.argwhere(outside)[0].tolist()
        raise MisuseError(
            f"{name}: {array[tuple(where)]} at {where} does not fit; the largest is {limit} "
            f"({self.bits} bits, {self.fraction_bits} of them behind the point, shared by all clients' sum)"
        )


@dataclass(frozen=True, eq=False)
class RingIntegers:
    """Integers that are ring elements already, so nothing scales them: with 24 fraction bits, 1 means 2^-24.

    For callers that encode values themselves, and for the `elements` of an outcome. Integers that are not wrapped in
    this class are encoded as numbers.

    Args:
        values: integers of any width; Python integers in an object array for 128 bits.

    Raises:
        MisuseError: they are not integers.
    """

    values: npt.NDArray[Any]

    def __post_init__(self) -> None:
        array = np.asarray(self.values)
        if array.dtype.kind not in "iuO" and array.size:
            raise MisuseError(f"ring integers: an array of integers expected, got dtype {array.dtype}")
        object.__setattr__(self, "values", array if array.dtype.kind in "iuO" else array.astype(np.int64))

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return self.values.shape

    @property
    def size(self) -> int:
        """As of an array."""
        return self.values.size

    def reshape(self, shape: tuple[int, ...]) -> RingIntegers:
        """As of an array."""
        return RingIntegers(self.values.reshape(shape))


def float_below(integer: int) -> float:
    """The largest float that is not above a positive integer."""
    nearest = float(integer)
    return nearest if int(nearest) <= integer else math.nextafter(nearest, 0.0)


def _beyond(integers: npt.NDArray[Any], most: int) -> npt.NDArray[np.bool_]:
    return np.asarray((integers > most) | (integers < -most), dtype=bool)


def _signed_128_to_float(elements: Elements) -> npt.NDArray[np.float64]:
    """Each number rounded once, to the nearest float, ties to even."""
    negative = elements[..., 1].view(np.int64) < 0
    flipped = ~elements
    low = np.where(negative, flipped[..., 0] + np.uint64(1), elements[..., 0])
    high = np.where(negative, flipped[..., 1] + (low == 0), elements[..., 1])
    used = np.frexp(high.astype(np.float64))[1].astype(np.uint64)  # bits of the high word
    used -= (high >> used - (used > 0) == 0) & (used > 0)  # one too many, where the float was rounded up
    # The uppermost 64 bits, the lowest of which also says whether anything is cut off: so that one conversion rounds.
    unused = np.uint64(64) - used
    top = high << unused | low >> used | (low << unused != 0)
    magnitude = np.ldexp(top.astype(np.float64), used.astype(np.int64))
    signed: npt.NDArray[np.float64] = np.where(negative, -magnitude, magnitude)
    return signed
