"""How much noise each server adds, and how far both servers' noise can take a sum.

A dose is a standard deviation, as a whole number of ring units.

Rules: a dose is a function of the task alone, never of data; it is computed in integers, so that it is the same on both
servers.

How far noise can take a sum is what is exceeded with probability 2^-40 at most.

A discrete Gaussian of σ is subgaussian with variance proxy σ², and so the sum of both servers' noise with 2σ². For one
weight, Pr[|e| > t] ≤ 2·exp(-t²/4σ²). For a vector of n of them, E exp(s·e²) ≤ (1 - 4sσ²)^(-1/2) as for a Gaussian, and
the tail of the chi-squared distribution follows: Pr[‖e‖² ≥ 2σ²·(n + 2·√(nx) + 2x)] ≤ exp(-x).

Source: Canonne, Kamath, Steinke (2020), fact 17, for the proxy; Laurent, Massart, "Adaptive estimation of a quadratic
functional by model selection" (2000), lemma 1, for the tail.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

COUNTS_SHARE: Final = 10
"""Where contributors are counted, their counts take one part in so many of a round's Rényi divergence."""


@dataclass(frozen=True)
class Doses:
    """The standard deviations of one server's noise, in ring integers.

    Attributes:
        values: of the noise on every weight.
        counts: of the noise on every row's count of contributors; 0 where they are not counted.
    """

    values: int
    counts: int = 0


def doses(noise: float, bound: int, counted_rows: int = 0) -> Doses:
    """The doses that keep a round within a Rényi divergence of α/(2z²).

        doses(12.7, 2**17)                      # Doses(values=1664615, counts=0)
        doses(12.7, 2**17, counted_rows=50)     # the counts take a tenth, the values nine tenths

    Args:
        noise: z.
        bound: b, the L2 norm that no client's update exceeds, as a ring integer.
        counted_rows: how many rows a client can be counted in, if contributors are counted: its counts have a norm of
            at most the square root of it.
    """
    exact = _ratio(noise)
    if not counted_rows:
        return Doses(_ceiling_of_root((exact[0] * bound) ** 2, exact[1] ** 2))
    values = _ceiling_of_root(COUNTS_SHARE * (exact[0] * bound) ** 2, (COUNTS_SHARE - 1) * exact[1] ** 2)
    return Doses(values, _ceiling_of_root(COUNTS_SHARE * exact[0] ** 2 * counted_rows, exact[1] ** 2))


def _ratio(number: float) -> tuple[int, int]:
    return float(number).as_integer_ratio()


def _ceiling_of_root(numerator: int, denominator: int) -> int:
    """The smallest whole number from 1 on whose square is at least numerator/denominator: the same everywhere."""
    return max(1, 1 + math.isqrt(-(-numerator // denominator) - 1)) if numerator else 1


TAIL_BITS: Final = 40


def largest_noise(sigma: int, weights: int) -> int:
    """The most, in ring integers, by which noise changes any one of so many weights of a sum.

    Args:
        sigma: the standard deviation of one server's noise.
        weights: how many weights there are.
    """
    exponent = (TAIL_BITS + 1) * math.log(2) + math.log(max(1, weights))
    return _scaled(sigma, math.sqrt(4 * exponent))


def noise_norm(sigma: int, weights: int) -> int:
    """The most, in ring integers, that the L2 norm of the noise on so many weights of a sum is.

    So an opened sum of `clients` updates, each of a norm of at most b, has a norm of at most
    clients·√(3 + stash)·b + noise_norm(sigma, weights), but with probability 2^-40.
    """
    exponent = TAIL_BITS * math.log(2)
    return _scaled(sigma, math.sqrt(2 * (weights + 2 * math.sqrt(weights * exponent) + 2 * exponent)))


def _scaled(sigma: int, factor: float) -> int:
    """σ times a factor, rounded up to a thousandth of σ: what the last bits of a logarithm are makes no difference."""
    return -(-sigma * (math.floor(factor * 1000) + 1) // 1000)
