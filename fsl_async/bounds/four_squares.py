"""Every natural number is a sum of four squares, and here they are (Lagrange 1770; Rabin and Shallit 1986).

a and b are drawn until p = n - a² - b² is a prime ≡ 1 (mod 4), which is c² + d²: c by Euclid's algorithm from a square
root of -1. A number that only looks prime is noticed, because c² + d² is compared with it; so a wrong answer is never
given. About one candidate in 2·ln n serves, each costs microseconds.

The time says how many candidates were drawn, and a little about n where n is small or a multiple of a high power of 4;
it is spent on the client's machine, before anything is sent.

Source: M. O. Rabin, J. O. Shallit, Randomized algorithms in number theory, Comm. Pure Appl. Math. 39 (1986), §5.
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from fsl_async import kernels
from fsl_async.digests import KEY_BYTES, Domain, digest
from fsl_async.randomness import Randomness

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
