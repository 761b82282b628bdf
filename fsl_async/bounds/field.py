"""Arithmetic modulo a large prime: elements as they travel, elements expanded from keys, and interpolation.

An element travels as its canonical little-endian bytes; a number that is not below the prime is refused, so that one
proof has one encoding. Two primes serve: one for rings of up to 64 bits, one for 128 bits, both so large that the
proof's sum of squares never reaches them (`BoundTerms`).

Numbers are Python integers, so the time of an operation depends on how long they are. What servers compute with is
uniformly random; what a client computes with stays on its machine.

Ring elements become such numbers, too: unsigned words as servers hold them, signed weights as a client means them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import factorial
from operator import mul

import numpy as np

from fsl_async import kernels
from fsl_async.digests import Buffer
from fsl_async.ring import Elements

BIAS_BITS = 128
"""An element drawn from so many bits more than the prime has is uniform but for 2^-128."""


@dataclass(frozen=True)
class Field:
    """The integers modulo a prime."""

    prime: int

    @property
    def element_bytes(self) -> int:
        """Bytes of one element as it travels."""
        return -(-self.prime.bit_length() // 8)

    @property
    def drawn_bytes(self) -> int:
        """Random bytes from which one element is drawn: whole cipher blocks."""
        return -(-(self.prime.bit_length() + BIAS_BITS) // 128) * 16

    def pack(self, elements: Iterable[int]) -> bytes:
        """The canonical bytes of some elements, each from 0 to the prime - 1."""
        return b"".join(element.to_bytes(self.element_bytes, "little") for element in elements)

    def unpack(self, data: Buffer) -> list[int]:
        """Read canonical bytes.

        Raises:
            ValueError: a number is not below the prime, or the bytes are no whole number of elements.
        """
        size = self.element_bytes
        if len(data) % size:
            raise ValueError(f"{len(data)} bytes are no whole number of elements of {size} bytes")
        elements = [int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)]
        for place, element in enumerate(elements):
            if element >= self.prime:
                raise ValueError(f"element {place} of {len(elements)} is not below the prime")
        return elements

    def reduce(self, random: Buffer) -> list[int]:
        """One element for each `drawn_bytes` of uniformly random bytes."""
        size = self.drawn_bytes
        whole = range(0, len(random), size)
        return [int.from_bytes(random[start : start + size], "little") % self.prime for start in whole]

    def expand(self, key: bytes, count: int) -> list[int]:
        """That many elements from the cipher's keystream under a key that is used for nothing else."""
        return self.reduce(expand_bytes(key, count * self.drawn_bytes))


FIELD_255 = Field(2**255 - 19)
"""For Ring(32) and Ring(64)."""

FIELD_321 = Field(2**321 - 9)
"""For Ring(128): squares of 128-bit words do not fit below 2^255."""


def field_of(ring_bits: int) -> Field:
    """The field of the proofs about elements of a ring."""
    return FIELD_321 if ring_bits == 128 else FIELD_255


def expand_bytes(key: bytes, size: int) -> bytes:
    """That many bytes of the cipher's keystream."""
    return kernels.keystream(key, nonce=0, count=-(-size // 16)).tobytes()[:size]


@lru_cache(maxsize=64)
def node_weights(field: Field, last: int) -> tuple[int, ...]:
    """Of each node i of 0…last: the inverse of Π (i - m) over the other nodes m."""
    inverses = [pow(factorial(i) * factorial(last - i), -1, field.prime) for i in range(last + 1)]
    return tuple(-inverse % field.prime if (last - i) % 2 else inverse for i, inverse in enumerate(inverses))


def lagrange(field: Field, last: int, point: int) -> list[int]:
    """The c_i with f(point) = Σ c_i·f(i) for every f of degree ≤ last; the point is none of the nodes 0…last."""
    distances = [(point - node) % field.prime for node in range(last + 1)]
    inverses = invert_all(field, distances)
    product = 1
    for distance in distances:
        product = product * distance % field.prime
    weights = node_weights(field, last)
    return [
        product * inverse % field.prime * weight % field.prime
        for inverse, weight in zip(inverses, weights, strict=True)
    ]


def invert_all(field: Field, elements: Sequence[int]) -> list[int]:
    """The inverse of each element, none of which is 0, by one inversion."""
    prefixes = list(accumulate(elements, lambda left, right: left * right % field.prime, initial=1))
    inverse = pow(prefixes[-1], -1, field.prime)
    inverses = [0] * len(elements)
    for place in reversed(range(len(elements))):
        inverses[place] = inverse * prefixes[place] % field.prime
        inverse = inverse * elements[place] % field.prime
    return inverses


def dot(field: Field, left: Iterable[int], right: Iterable[int]) -> int:
    """Σ left·right in the field."""
    total: int = sum(map(mul, left, right))
    return total % field.prime


def unsigned(elements: Elements, ring_bits: int) -> list[int]:
    """Each element as a number from 0 to 2^l - 1; elements as `Ring` has them."""
    if ring_bits != 128:
        words: list[int] = elements.tolist()
        return words
    low, high = elements[..., 0].tolist(), elements[..., 1].tolist()
    return [(top << 64) | bottom for bottom, top in zip(low, high, strict=True)]


def signed(elements: Elements, ring_bits: int) -> list[int]:
    """Each element as a number from -2^(l-1) to 2^(l-1) - 1."""
    if ring_bits != 128:
        numbers: list[int] = elements.view(f"<i{ring_bits // 8}").tolist()
        return numbers
    half = 1 << (ring_bits - 1)
    return [word - 2 * half if word >= half else word for word in unsigned(elements, ring_bits)]


def content(elements: Elements) -> memoryview:
    """The elements' bytes."""
    return np.ascontiguousarray(elements).reshape(-1).view(np.uint8).data
