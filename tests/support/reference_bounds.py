"""A slow, obvious oracle for the proofs of bounds, on Python integers: what docs/wire says, line by line.

Weights are signed integers, shares words from 0 to 2^l - 1. Polynomials are interpolated from the definition; the
library never does that. Nothing is shared with the package.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, isqrt, log2, prod, sqrt

from tests.support.reference import aes
from tests.support.wire_page import H, le

HIGH = {256: 2317, 512: 3944, 1024: 6995, 2048: 12812}
"""Ten times T_high."""


def interpolate(points: dict[int, int], at: int, prime: int) -> int:
    """The value at `at` of the polynomial through some points."""
    total = 0
    for x, y in points.items():
        above = prod(at - other for other in points if other != x)
        below = prod(x - other for other in points if other != x)
        total += y * above * pow(below, -1, prime)
    return total % prime


@cache
def keystream(key: bytes, size: int, nonce: int = 0) -> bytes:
    return b"".join(le(aes(key, nonce * 2**64 + counter), 16) for counter in range(ceil(size / 16)))[:size]


@dataclass(frozen=True)
class Reference:
    """One proof system: `rows` is 0 where the method is exact."""

    ring_bits: int
    norm: int
    weights: int
    rows: int = 0
    largest_weight: int = 0
    place: int = 0

    @property
    def prime(self) -> int:
        return 2**321 - 9 if self.ring_bits == 128 else 2**255 - 19

    @property
    def element(self) -> tuple[int, int]:
        """Bytes of an element, and of what it is drawn from."""
        return (41, 64) if self.ring_bits == 128 else (32, 48)

    @property
    def limit(self) -> int:
        return HIGH[self.rows] * self.norm**2 // 10 if self.rows else self.norm**2

    @property
    def offset(self) -> int:
        return isqrt(self.limit) if self.rows else 0

    @property
    def integers(self) -> int:
        return self.rows + (4 + 4 + (self.rows > 0) if self.largest_weight else 4)

    @property
    def mask_bytes(self) -> int:
        reach, spread = self.offset or self.norm, ceil(ceil(log2(self.integers)) / 2)
        return ceil(((2 * reach + 1).bit_length() + 64 + spread + 1) / 8)

    @property
    def first_calls(self) -> int:
        return ceil(sqrt(((self.rows or self.weights) + 4) / 2))

    @property
    def wires(self) -> int:
        return ceil(((self.rows or self.weights) + 4) / self.first_calls)

    @property
    def calls(self) -> int:
        return self.first_calls + (ceil(5 / self.wires) if self.largest_weight else 0)

    def values(self, words: list[int], integers: list[int], constant: int = 1) -> list[int]:
        """The values of the proof; of a share of them, the constant L is one server's alone."""
        of_update, squares = (integers[: self.rows] if self.rows else words), integers[-4:]
        if not self.largest_weight:
            return of_update + squares
        weight, squares, others = integers[self.rows] if self.rows else words[self.place], integers[-8:-4], squares
        first = of_update + squares
        first += [0] * (self.first_calls * self.wires - len(first))
        return [*first, 2 * weight - constant * self.largest_weight, *others]

    # what the polynomials say

    def wire(self, values: list[int], seeds: list[int], number: int) -> dict[int, int]:
        """A_number by its values at 0…G."""
        padded = values + [0] * (self.wires * self.calls - len(values))
        return {0: seeds[number]} | {
            call: padded[(call - 1) * self.wires + number] for call in range(1, self.calls + 1)
        }

    def prove(self, values: list[int], seeds: list[int]) -> list[int]:
        wires = [self.wire(values, seeds, number) for number in range(self.wires)]
        q = [
            sum(interpolate(wire, at, self.prime) ** 2 for wire in wires) % self.prime
            for at in range(2 * self.calls + 1)
        ]
        return seeds + q

    def answer(self, values: list[int], proof: list[int], t: int) -> list[int]:
        seeds, q = proof[: self.wires], dict(enumerate(proof[self.wires :]))
        at_t = [interpolate(self.wire(values, seeds, number), t, self.prime) for number in range(self.wires)]
        sums = [sum(q[call] for call in range(1, self.first_calls + 1)) % self.prime]
        if self.largest_weight:
            sums.append(sum(q[call] for call in range(self.first_calls + 1, self.calls + 1)) % self.prime)
        return [*sums, interpolate(q, t, self.prime), *at_t]

    def holds(self, left: list[int], right: list[int]) -> bool:
        total, *rest = [(a + b) % self.prime for a, b in zip(left, right, strict=True)]
        if self.largest_weight and rest.pop(0) != self.largest_weight**2:
            return False
        at_t, *wires = rest
        return total == self.limit % self.prime and sum(a * a for a in wires) % self.prime == at_t

    # what travels

    def integer_masks(self, msk: bytes, bind: bytes) -> list[int]:
        size = self.mask_bytes
        stream = keystream(H("fsl.bound-mask", bind, key=msk)[:16], size * self.integers)
        return [int.from_bytes(stream[i * size :][:size], "little") % 2 ** (8 * size - 1) for i in range(self.integers)]

    def proof_mask(self, msk: bytes, bind: bytes) -> list[int]:
        size, count = self.element[1], self.wires + 2 * self.calls + 1
        stream = keystream(H("fsl.bound-proof", bind, key=msk)[:16], size * count)
        return [int.from_bytes(stream[i * size :][:size], "little") % self.prime for i in range(count)]

    def private_part(self, masked: list[int], proof: list[int], msk_other: bytes, bind: bytes) -> bytes:
        masks = self.integer_masks(msk_other, bind)
        integers = [le(v + self.offset + z, self.mask_bytes) for v, z in zip(masked, masks, strict=True)]
        shares = zip(proof, self.proof_mask(msk_other, bind), strict=True)
        return b"".join(integers) + b"".join(le((p - mask) % self.prime, self.element[0]) for p, mask in shares)

    def point(self, query: bytes, submission: bytes) -> int:
        counter = 0
        while True:
            halves = [H("fsl.bound-query", query, submission, bytes([counter, half])) for half in (0, 1)]
            t = int.from_bytes(b"".join(halves), "little") % self.prime
            if t > 2 * self.calls:
                return t
            counter += 1

    def project(self, bind: bytes, words: list[int]) -> list[int]:
        """R·words, as Python's integers."""
        seed = H("fsl.bound-matrix", bind)
        nonce = int.from_bytes(seed[16:24], "little")
        stream = keystream(seed[:16], 2 * self.rows * ceil(len(words) / 8), nonce)

        def bit(half: int, row: int, column: int) -> int:
            return stream[(2 * (column // 8) + half) * self.rows + row] >> column % 8 & 1

        return [
            sum((bit(0, row, column) - bit(1, row, column)) * word for column, word in enumerate(words))
            for row in range(self.rows)
        ]

    def verifier_share(
        self,
        server: int,
        words: list[int],
        private: bytes | None,
        msk: bytes,
        bind: bytes,
        query: bytes,
        submission: bytes,
    ) -> bytes:
        own = [-word for word in words] if server else words
        if private is None:
            integers = [-mask for mask in self.integer_masks(msk, bind)]
            proof = self.proof_mask(msk, bind)
        else:
            end, width = self.integers * self.mask_bytes, self.element[0]
            pieces = [private[i * self.mask_bytes :][: self.mask_bytes] for i in range(self.integers)]
            integers = [int.from_bytes(piece, "little") - self.offset for piece in pieces]
            proof = [int.from_bytes(private[i:][:width], "little") for i in range(end, len(private), width)]
        link = b""
        if self.rows:
            sign = -1 if private is None else 1
            linked = self.project(bind, own) + ([own[self.place]] if self.largest_weight else [])
            whole, differences = 2**self.ring_bits, zip(linked, integers, strict=False)
            content = b"".join(le(sign * (y - v) % whole, self.ring_bits // 8) for y, v in differences)
            link = H("fsl.bound-link", bind, content)
        answer = self.answer(self.values(own, integers, 1 - server), proof, self.point(query, submission))
        return link + b"".join(le(element, self.element[0]) for element in answer)
