"""A fully linear proof that the squares of shared values sum up to a known number (Boneh et al. 2019, BBCGI19).

The M values lie on κ wires through G calls: value g belongs to wire g mod κ, call 1 + g div κ; zeros fill up. Wire j is
the polynomial A_j of degree G with A_j(0) a random seed and A_j(c) its value of call c. The proof is the seeds and
Q(0), …, Q(2G) of Q = Σ A_j². An additive share of values and proof gives a share of A_j(t) and Q(t) for any t.

    T = Σ_{c=1…G} Q(c) is the claimed sum, and Σ_j A_j(t)² = Q(t) at a random t: so Q is what it should be.

Values whose squares have a known sum of their own lie apart, in the last calls: then T is two numbers, one for each
range of calls, and everything else is as before.

Rules: t is unknown until values and proof are fixed, so a wrong Q passes at 2G points t at most; t > 2G, because at
t = 1…G the wires show values; one proof is queried at one t, ever, because a wire's seed hides one point of it.

Inner products are exact, of arrays of 64-bit integers. Where the squares of all numbers sum up to less than 2^63, so
does every inner product (Cauchy and Schwarz); larger numbers are cut into limbs first. Integers and not floats, though
those are faster: their library takes all cores for half a millisecond's work, and waits for them where other parties
need them.

Source: D. Boneh, E. Boyle, H. Corrigan-Gibbs, N. Gilboa, Y. Ishai, Zero-knowledge proofs on secret-shared data via
fully linear PCPs, CRYPTO 2019, §4.2 (degree two, all gates alike).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import factorial, isqrt
from operator import mul

import numpy as np
import numpy.typing as npt

from fsl_async import kernels
from fsl_async.bounds.field import Field, dot, invert_all, lagrange, node_weights
from fsl_async.ring import Elements

LIMB_BITS = 24

Limbs = npt.NDArray[np.int64]


def gram(rows: list[list[int]]) -> list[list[int]]:
    """The inner product of every row with every row; rows are equally long."""
    if sum(number * number for row in rows for number in row) < 2**63:
        numbers = np.array(rows, dtype=np.int64)
        inner: list[list[int]] = _products(numbers, numbers).tolist()
        return inner
    limbs = _limbs(rows)
    total = np.zeros((len(rows), len(rows)), dtype=object)
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs):
            total += _products(left, right).astype(object) << LIMB_BITS * (i + j)
    products: list[list[int]] = total.tolist()
    return products


def _limbs(rows: list[list[int]]) -> list[Limbs]:
    """The rows' numbers in signed limbs: Σ limb·2^(24·i), each limb within ±2^23."""
    if len(rows[0]) << 2 * LIMB_BITS - 2 >= 2**63:
        raise ValueError(f"inner products of {len(rows[0])} limbs could exceed 64 bits")
    rest = np.array(rows, dtype=object)
    half, full = 1 << LIMB_BITS - 1, 1 << LIMB_BITS
    limbs = []
    while rest.any():
        limb = (rest + half) % full - half
        limbs.append(limb.astype(np.int64))
        rest = (rest - limb) >> LIMB_BITS
    return limbs


def _products(left: Limbs, right: Limbs) -> Limbs:
    products: Limbs = np.einsum("ij,kj->ik", left, right)
    return products


@dataclass(frozen=True)
class Wires:
    """How values lie on the wires: a function of how many there are.

    Args:
        field: of the proof.
        values: M, whose squares have one sum.
        apart: how many more have a sum of their own; they fill the last calls.
    """

    field: Field
    values: int
    apart: int = 0

    @property
    def first_calls(self) -> int:
        """The calls of the M values: about √(M/2), where seeds and Q together are fewest."""
        return isqrt((self.values - 1) // 2) + 1

    @property
    def calls(self) -> int:
        """G, the values on one wire."""
        return self.first_calls - -self.apart // self.count

    @property
    def count(self) -> int:
        """κ, how many wires there are."""
        return -(-self.values // self.first_calls)

    @property
    def first_apart(self) -> int:
        """The number of the first value that lies apart."""
        return self.first_calls * self.count

    @property
    def proof_elements(self) -> int:
        """Field elements of a proof: κ seeds, then Q at 0…2G."""
        return self.count + 2 * self.calls + 1

    @property
    def answer_elements(self) -> int:
        """Field elements of an answer: T, or both of them, Q(t), then A_0(t), …, A_{κ-1}(t)."""
        return len(self.sums) + 1 + self.count

    @property
    def sums(self) -> tuple[range, ...]:
        """The calls over which Q is summed: one range for each T."""
        first = range(1, self.first_calls + 1)
        return (first, range(self.first_calls + 1, self.calls + 1)) if self.apart else (first,)

    def laid_out(self, values: Sequence[int], apart: Sequence[int]) -> list[int]:
        """All values at their numbers, zeros between."""
        return [*values, *[0] * (self.first_apart - len(values)), *apart] if apart else list(values)


def prove(wires: Wires, values: Sequence[int], seeds: Sequence[int]) -> list[int]:
    """The proof of some signed values under one fresh seed for each wire: the seeds, then Q(0), …, Q(2G).

    Q is a quadratic form of the wires' nodes, so all their products K[c][c′] = Σ_j A_j(c)·A_j(c′) determine it, and
    partial fractions turn each further Q(t) into 2G products:

        Q(t) = ℓ(t)²·Σ_c [ α_c/(t-c) + β_c/(t-c)² ],  α_c = 2·w_c·Σ_{c′≠c} K[c][c′]·w_c′/(c-c′),  β_c = K[c][c]·w_c²

    with ℓ(t) = Π (t - c) and w_c the nodes' weights. So all of Q costs O(M) operations and not O(G·M).
    """
    prime, calls, count = wires.field.prime, wires.calls, wires.count
    rows = [list(values[start : start + count]) for start in range(0, calls * count, count)]
    rows = [row + [0] * (count - len(row)) for row in rows]
    across = [sum(map(mul, seeds, row)) % prime for row in rows]
    inner = [[dot(wires.field, seeds, seeds), *across]]
    inner += [[with_seed, *products] for with_seed, products in zip(across, gram(rows), strict=True)]
    return [*seeds, *(inner[call][call] % prime for call in range(calls + 1)), *_extended(wires, inner)]


def _extended(wires: Wires, inner: list[list[int]]) -> list[int]:
    """Q(G+1), …, Q(2G) from all products of nodes."""
    prime, calls = wires.field.prime, wires.calls
    weights = node_weights(wires.field, calls)
    inverse, by_difference, squared = _inverses(wires.field, calls)
    alphas, betas = [], []
    for call, products in enumerate(inner):
        others = by_difference[calls - call : 2 * calls - call + 1]  # 1/(call - c′) for c′ = 0…G, and 0 for itself
        mixed = dot(wires.field, map(mul, products, weights), others)
        alphas.append(2 * weights[call] * mixed % prime)
        betas.append(products[call] * weights[call] % prime * weights[call] % prime)
    extended = []
    for point in range(calls + 1, 2 * calls + 1):
        start = 2 * calls - point
        single, double = inverse[start : start + calls + 1], squared[start : start + calls + 1]
        scale = factorial(point) // factorial(point - calls - 1)
        extended.append((dot(wires.field, alphas, single) + dot(wires.field, betas, double)) * scale * scale % prime)
    return extended


@lru_cache(maxsize=16)
def _inverses(field: Field, calls: int) -> tuple[list[int], list[int], list[int]]:
    """1/2G, …, 1/1; then 1/G, …, 1/1, 0, 1/-1, …, 1/-G; and the first list's squares."""
    falling = invert_all(field, range(2 * calls, 0, -1))
    near = falling[calls:]
    squared = [inverse * inverse % field.prime for inverse in falling]
    return falling, [*near, 0, *(field.prime - inverse for inverse in reversed(near))], squared


@dataclass(frozen=True)
class Query:
    """The question to one proof: a point t > 2G."""

    wires: Wires
    point: int

    @cached_property
    def _coefficients(self) -> list[int]:
        """Of the wires' nodes 0…G at t."""
        return lagrange(self.wires.field, self.wires.calls, self.point)

    def of_words(self, words: Elements) -> list[int]:
        """What words, the first values, add to every A_j(t); uint64 (n,), or (n, 2) for 128 bits; not reduced."""
        rows, columns = self.wires.calls, self.wires.count
        padded = np.zeros((rows * columns, *words.shape[1:]), dtype=np.uint64)
        padded[: len(words)] = words
        return kernels.combine(self._coefficients[1:], padded.reshape(rows, columns, *words.shape[1:]))

    def of_integers(self, integers: Sequence[int], first: int) -> list[int]:
        """What signed integers, the values from the number `first` on, add to every A_j(t); not reduced."""
        sums = [0] * self.wires.count
        for number, integer in enumerate(integers, first):
            call, wire = divmod(number, self.wires.count)
            sums[wire] += self._coefficients[1 + call] * integer
        return sums

    def answer(self, of_values: Sequence[int], proof: Sequence[int]) -> list[int]:
        """T, Q(t), then A_0(t), …, from what a share of the values adds to each wire and a share of the proof."""
        field, calls, count = self.wires.field, self.wires.calls, self.wires.count
        seeds, sums = proof[:count], proof[count:]
        own = self._coefficients[0]
        at_point = [(own * seed + added) % field.prime for seed, added in zip(seeds, of_values, strict=True)]
        totals = [sum(sums[call] for call in over) % field.prime for over in self.wires.sums]
        return [*totals, dot(field, lagrange(field, 2 * calls, self.point), sums), *at_point]


def holds(wires: Wires, answer: Sequence[int], *claimed: int) -> bool:
    """Whether the sum of both servers' answers says that the squares sum up to the claimed numbers, one for each T."""
    totals, (at_point, *wire_values) = answer[: len(wires.sums)], answer[len(wires.sums) :]
    right = [number % wires.field.prime for number in claimed]
    return list(totals) == right and dot(wires.field, wire_values, wire_values) == at_point
