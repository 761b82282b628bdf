"""How far the noise of both servers can take a sum: what is exceeded with probability 2^-40 at most.

A discrete Gaussian of σ is subgaussian with variance proxy σ², and so the sum of both servers' noise with 2σ². For one
weight, Pr[|e| > t] ≤ 2·exp(-t²/4σ²). For a vector of n of them, E exp(s·e²) ≤ (1 - 4sσ²)^(-1/2) as for a Gaussian, and
the tail of the chi-squared distribution follows: Pr[‖e‖² ≥ 2σ²·(n + 2·√(nx) + 2x)] ≤ exp(-x).

Source: Canonne, Kamath, Steinke (2020), fact 17, for the proxy; Laurent, Massart, "Adaptive estimation of a quadratic
functional by model selection" (2000), lemma 1, for the tail.
"""

from __future__ import annotations

import math
from typing import Final

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
