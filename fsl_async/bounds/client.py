"""A client's side: the private part, which proves to both servers that its update is within the bound.

The carrier gets the four squares of what is missing (and, if the method is projected, the projections) as integers
under masks that the other server expands from its master seed, and its share of the proof.

Rule: one binding, one private part. The submission's salt, and so its binding, is fresh for each call, and what was
made is sent again as the same bytes: a mask that hid two values would show their difference.

What is missing is a sum of four squares, as every natural number is (Lagrange 1770). a and b are drawn until p = n - a²
- b² is a prime ≡ 1 (mod 4), which is c² + d²: c by Euclid's algorithm from a square root of -1. A number that only
looks prime is noticed, because c² + d² is compared with it; so a wrong answer is never given. About one candidate in
2·ln n serves, each costs microseconds.

The time says how many candidates were drawn, and a little about n where n is small or a multiple of a high power of 4;
it is spent on the client's machine, before anything is sent.

Source: M. O. Rabin, J. O. Shallit, Randomized algorithms in number theory, Comm. Pure Appl. Math. 39 (1986), §5.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np

from fsl_async import kernels
from fsl_async.bounds.field import content, signed
from fsl_async.bounds.masking import fresh_seeds, integer_masks, proof_mask
from fsl_async.bounds.projection import project
from fsl_async.bounds.sum_of_squares import prove
from fsl_async.bounds.terms import SQUARES, BoundTerms
from fsl_async.digests import KEY_BYTES, Domain, digest
from fsl_async.errors import BoundExceededError, FslError, MisuseError
from fsl_async.randomness import Randomness
from fsl_async.ring import Elements

SMALL = 3_000
"""Below this, squares are searched for; nothing is left to chance."""

TRIALS = 2**17
"""Candidates at most. For numbers of 256 bits one in 400 serves, so all fail with probability below e^-300."""

LARGEST_BASE = 1_000
"""The least number without a square root modulo a prime is far below this."""

_BASES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)

FourSquares = tuple[int, int, int, int]


def four_squares(number: int, randomness: Randomness) -> FourSquares:
    """Four whole numbers from 0 on whose squares sum up to the number.

    Args:
        number: at least 0.
        randomness: 32 bytes of it are taken.

    Raises:
        ArithmeticError: no candidate served, which does not happen.
    """
    scale = 1
    while number and number % 4 == 0:
        number, scale = number // 4, 2 * scale
    found = _searched(number) if number < SMALL else _drawn(number, _Stream(randomness(32)))
    a, b, c, d = (scale * root for root in found)
    return a, b, c, d


def _searched(number: int) -> FourSquares:
    for a in range(isqrt(number), -1, -1):
        for b in range(isqrt(number - a * a), -1, -1):
            rest = number - a * a - b * b
            for c in range(isqrt(rest), -1, -1):
                d = isqrt(rest - c * c)
                if c * c + d * d == rest:
                    return a, b, c, d
    raise AssertionError("Lagrange was right")


class _Stream:
    """Numbers drawn from one key; however the key came about, they differ."""

    def __init__(self, seed: bytes) -> None:
        self._keys = kernels.key_schedule(digest(Domain.BOUND_SQUARES, seed)[:KEY_BYTES])
        self._drawn = 0

    def below(self, limit: int) -> int:
        """A number from 0 to limit - 1; its bias (2^-64) is of no consequence here."""
        count = -(-(limit.bit_length() + 64) // 128)
        counters = np.zeros((count, 2), dtype=np.uint64)
        counters[:, 0] = np.arange(self._drawn, self._drawn + count, dtype=np.uint64)
        self._drawn += count
        return int.from_bytes(kernels.encrypt_blocks(self._keys, counters).tobytes(), "little") % limit


def _drawn(number: int, stream: _Stream) -> FourSquares:
    for _ in range(TRIALS):
        a = stream.below(isqrt(number) + 1)
        b = stream.below(isqrt(number - a * a) + 1)
        rest = number - a * a - b * b
        if rest < SMALL:
            for c in range(isqrt(rest), -1, -1):
                d = isqrt(rest - c * c)
                if c * c + d * d == rest:
                    return a, b, c, d
        elif rest % 4 == 1 and _looks_prime(rest):
            found = _two_squares(rest)
            if found is not None:
                return a, b, *found
    raise ArithmeticError(f"no four squares of a number of {number.bit_length()} bits in {TRIALS} trials")


def _looks_prime(number: int) -> bool:
    """Miller and Rabin's test to a few fixed bases, of a number above all of them."""
    if any(number % base == 0 for base in _BASES):
        return False
    odd = number - 1
    twos = (odd & -odd).bit_length() - 1
    odd >>= twos
    for base in _BASES[:4]:
        power = pow(base, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def _two_squares(prime: int) -> tuple[int, int] | None:
    """Two numbers, c and d, with c² + d² = prime; None if it is no prime after all."""
    roots = (pow(base, (prime - 1) // 4, prime) for base in range(2, LARGEST_BASE))
    larger, smaller = prime, next((root for root in roots if root * root % prime == prime - 1), 0)
    while smaller * smaller > prime:
        larger, smaller = smaller, larger % smaller
    other = isqrt(prime - smaller * smaller)
    return (smaller, other) if smaller and smaller**2 + other**2 == prime else None


SEED_BYTES = 32
"""Randomness from which the wires' seeds are drawn."""


class ProjectionError(FslError):
    """An update within the bound whose projections are too long by chance, once in 2^40 times: take another salt."""


def private_part(terms: BoundTerms, elements: Elements, msk_other: bytes, bind: bytes, randomness: Randomness) -> bytes:
    """The bytes that the carrier gets beside the public part, `terms.private_bytes` of them.

    Args:
        terms: of the proof.
        elements: the whole update: all trees' payloads in the order of the wire, then all dense blocks; (n,) as `Ring`
            has them.
        msk_other: the master seed of the server that is not the carrier.
        bind: the submission's `derivation.binding`, of a fresh salt.
        randomness: the source of the wires' seeds and of the four squares.

    Raises:
        BoundExceededError: the update's norm is above the bound; the error names both.
        ProjectionError: it is not, but its projections are; never where the method is exact.
        MisuseError: the client's weight is below 0 or above the largest.
    """
    weights = signed(elements, terms.ring_bits)
    squares = sum(weight * weight for weight in weights)
    if squares > terms.norm**2:
        raise BoundExceededError(terms.in_units(squares), terms.in_units(terms.norm**2))
    shown = [] if terms.exact else _projections(terms, elements, bind)
    missing = terms.limit - (squares if terms.exact else sum(value * value for value in shown))
    if missing < 0:
        raise ProjectionError("the update's projections are too long, which happens once in 2^40 times; try again")
    weight = [weights[terms.weight_place]] if terms.largest_weight else []
    linked = [] if terms.exact else [*shown, *weight]
    ranged = [square for each in weight for square in _ranged(terms, each, randomness)]
    masked = [*linked, *four_squares(missing, randomness), *ranged]
    seeds = fresh_seeds(terms, content(elements), msk_other, bind, randomness(SEED_BYTES))
    return packed(terms, masked, prove(terms.wires, proved(terms, weights, masked), seeds), msk_other, bind)


def proved(terms: BoundTerms, words: list[int], masked: list[int]) -> list[int]:
    """The values of the proof at their numbers, from the words' differences and the masked integers."""
    of_update, squares = words if terms.exact else masked[: terms.projections], masked[terms.linked :]
    if not terms.largest_weight:
        return [*of_update, *squares]
    weight = words[terms.weight_place] if terms.exact else masked[terms.projections]
    apart = [2 * weight - terms.largest_weight, *squares[SQUARES:]]
    return terms.wires.laid_out([*of_update, *squares[:SQUARES]], apart)


def _ranged(terms: BoundTerms, weight: int, randomness: Randomness) -> Sequence[int]:
    """Four squares that complete (2v - L)² to L²: there are some exactly if v is from 0 to L."""
    most = terms.largest_weight
    if not 0 <= weight <= most:
        raise MisuseError(f"a weight from 0 to {most} units of the ring expected, got {weight}")
    return four_squares(most**2 - (2 * weight - most) ** 2, randomness)


def packed(terms: BoundTerms, masked: list[int], proof: list[int], msk_other: bytes, bind: bytes) -> bytes:
    """The private part of these values and this proof."""
    masks = integer_masks(terms, msk_other, bind)
    integers = [value + terms.offset + mask for value, mask in zip(masked, masks, strict=True)]
    field = terms.field
    shares = [
        (element - mask) % field.prime for element, mask in zip(proof, proof_mask(terms, msk_other, bind), strict=True)
    ]
    return b"".join(integer.to_bytes(terms.mask_bytes, "little") for integer in integers) + field.pack(shares)


def _projections(terms: BoundTerms, elements: Elements, bind: bytes) -> list[int]:
    """R·w as signed numbers: within the bound they are too short to wrap."""
    half = 1 << (terms.ring_bits - 1)
    projected = project(bind, terms.projections, elements, terms.ring_bits)
    return [number - 2 * half if number >= half else number for number in projected]
