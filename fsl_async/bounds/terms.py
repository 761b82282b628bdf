"""What the proof of one task's bound looks like: every size of it, from public parameters alone.

Two methods. *Exact*: each server lifts its own words, below 2^l, into the field; the difference of two words is the
weight but for a wrap, whose probability the task keeps below 2^-40 (`fsl_async.bounds.of_task`). *Projected*: the
weights are projected by a matrix of -1, 0 and 1 to `PROJECTIONS` numbers, of which the client gives integer shares that
never wrap; any ring will do, and what is guaranteed is a factor `slack` above the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt, ldexp, sqrt
from typing import Literal, TypeAlias

from fsl_async.bounds.field import Field, field_of
from fsl_async.bounds.sum_of_squares import Wires
from fsl_async.digests import DIGEST_BYTES

Method: TypeAlias = Literal["exact", "projected"]

PROJECTIONS = 512
"""N, the rows of the matrix."""

LIMITS = {256: (278, 2317), 512: (974, 3944), 1024: (2665, 6995), 2048: (6546, 12812)}
"""By N, ten times T_low and T_high: an honest client's projections have squares of T_high·b² at most, but for 2^-40; if
a vector's have T_low·c² or less, its norm is below c, but for 2^-128. docs/bounds-proofs.md has the proof; a test
computes the table again."""

SQUARES = 4
"""What is missing from a sum of squares to its limit is itself a sum of four."""

RANGED = 1 + SQUARES
"""What proves that a client's weight v is from 0 to L: (2v - L)² and four squares have the sum L²."""

STATISTICAL = 64
"""An integer mask hides its value but for 2^-64."""


@dataclass(frozen=True)
class BoundTerms:
    """The parameters of the proofs in one round, and what follows from them.

    Args:
        method: "exact" or "projected".
        ring_bits: l.
        fraction_bits: of the ring, for messages to people.
        norm: b, the bound as a ring integer.
        weights: n, the elements of a client's whole update: every tree's payload in the order of the wire, then all
            dense blocks.
        projections: N, where the method is projected.
        largest_weight: L, where the task weighs its clients, as a ring integer; it is at most b. 0 where it does not.
        weight_place: which of the n elements is the client's weight.
    """

    method: Method
    ring_bits: int
    fraction_bits: int
    norm: int
    weights: int
    projections: int = PROJECTIONS
    largest_weight: int = 0
    weight_place: int = 0

    @property
    def exact(self) -> bool:
        """Whether the method is exact."""
        return self.method == "exact"

    @cached_property
    def limit(self) -> int:
        """What the squares of all proved values sum up to: b², or ⌊T_high·b²⌋."""
        return self.norm**2 if self.exact else LIMITS[self.projections][1] * self.norm**2 // 10

    @property
    def guaranteed_square(self) -> int:
        """The square of the largest norm that an accepted update may have, rounded up."""
        low, high = (1, 1) if self.exact else LIMITS[self.projections]
        return -(-(self.norm**2) * high // low)

    @property
    def slack(self) -> float:
        """The largest norm that an accepted update may have, by the bound."""
        low, high = (1, 1) if self.exact else LIMITS[self.projections]
        return sqrt(high / low)

    @property
    def limits(self) -> tuple[int, ...]:
        """The known sums of the proof: `limit`, and L² where there is a weight."""
        return (self.limit, self.largest_weight**2) if self.largest_weight else (self.limit,)

    @property
    def linked(self) -> int:
        """How many masked integers are compared with the servers' words mod 2^l: projections, and the weight."""
        return 0 if self.exact else self.projections + bool(self.largest_weight)

    @property
    def masked(self) -> int:
        """How many values travel as masked integers: the linked ones, four squares, and four for a weight."""
        return self.linked + SQUARES + (SQUARES if self.largest_weight else 0)

    @cached_property
    def offset(self) -> int:
        """Y, added to each of them so that none is negative."""
        return 0 if self.exact else isqrt(self.limit)

    @cached_property
    def mask_bytes(self) -> int:
        """Bytes of one masked integer; the mask itself has one bit less."""
        reach = self.norm if self.exact else self.offset
        spread = -(-(self.masked - 1).bit_length() // 2)
        return -(-((2 * reach + 1).bit_length() + STATISTICAL + spread + 1) // 8)

    @property
    def field(self) -> Field:
        """Where the proof is computed."""
        return field_of(self.ring_bits)

    @cached_property
    def wires(self) -> Wires:
        """The proof's geometry: the servers' words or the projections, then squares; those of a weight apart."""
        of_update = self.weights if self.exact else self.projections
        return Wires(self.field, of_update + SQUARES, RANGED if self.largest_weight else 0)

    @property
    def integer_bytes(self) -> int:
        """Bytes of all masked integers."""
        return self.masked * self.mask_bytes

    @property
    def private_bytes(self) -> int:
        """Bytes that the carrier gets from the client: masked integers, then its share of the proof."""
        return self.integer_bytes + self.wires.proof_elements * self.field.element_bytes

    @property
    def verifier_bytes(self) -> int:
        """Bytes that a server gives the other: the link's digest, if there is one, then its answer."""
        return (0 if self.exact else DIGEST_BYTES) + self.wires.answer_elements * self.field.element_bytes

    @property
    def largest_sum(self) -> int:
        """No sum of squares in the proof is above this, whatever a client sends."""
        words = self.weights << 2 * self.ring_bits if self.exact else 0
        integer = (1 << 8 * self.mask_bytes) + self.offset
        of_update = words + self.masked * integer**2 + self.limit
        weight = (1 << self.ring_bits) if self.exact else integer
        of_weight = (2 * weight + self.largest_weight) ** 2 + SQUARES * integer**2 + self.largest_weight**2
        return max(of_update, of_weight) if self.largest_weight else of_update

    def in_units(self, squares: int) -> float:
        """The root of a sum of squares of ring integers, in the values' units."""
        root = isqrt(squares << 64)
        return ldexp(root, -32 - self.fraction_bits)
