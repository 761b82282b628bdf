"""The table of limits for projections, computed again from docs/bounds-proofs.md, with a covering in place of plots.

Of one row, X = ⟨r, w⟩ mod q. The lemma bounds E exp(-s·X²/c²) for ‖w‖ ≥ c ≤ q/1024 by the largest of

    (1 + e^-s)/2                                    if a single weight is at least c;
    sup over 0 < v < 1 of E_g |cos(g·v·√(s/2))|^(2/v²)   otherwise, g normal;

plus what the sum over frequencies adds to that expectation (`aliasing`).
"""

import math
from itertools import pairwise

import numpy as np
import pytest

from fsl_async.bounds.terms import LIMITS

BEST = {256: 2.3, 512: 1.64, 1024: 0.92, 2048: 0.56}
"""By N, an s at which the bound on T_low is about best; any s is valid."""

ROUNDING = 1e-9
"""More than what the floats of this file round away."""


def above(s: float, cells: int = 600, grid: int = 8_000) -> float:
    """No less than sup over 0 < v < 1 of E_g |cos(g·v·√(s/2))|^(2/v²).

    Up to the first zero of the cosine, |cos x|^(2/v²) falls in v and in g, and is at most exp(-x²/v²) = exp(-s·g²/2):
    (ln cos x)/x² falls and is at most -1/2. Beyond it, each cell of v × g gets the largest cosine over the largest v.
    """
    c, smallest = math.sqrt(s / 2), 0.25
    first_zero = math.pi / 2 / c
    best = (1 + s) ** -0.5 + math.erfc(first_zero / smallest / math.sqrt(2))  # all v below the smallest
    edges = np.linspace(0, 9, grid + 1)
    tail = math.erfc(9 / math.sqrt(2))
    mass = np.diff([math.erf(edge / math.sqrt(2)) for edge in edges])
    left, right = edges[:-1], edges[1:]
    velocities = np.linspace(smallest, 1, cells + 1)
    for low, high in pairwise(velocities):
        value = np.empty(grid)
        lobe = right * high * c < math.pi / 2
        value[lobe] = np.cos(left[lobe] * low * c) ** (2 / low**2)
        near, far = left[~lobe] * low * c, right[~lobe] * high * c
        peak = np.floor(far / math.pi) > np.floor(near / math.pi)
        cosine = np.where(peak, 1.0, np.maximum(abs(np.cos(near)), abs(np.cos(far))))
        value[~lobe] = cosine ** (2 / high**2)
        best = max(best, float(mass @ value) + tail)
    return best + ROUNDING


def aliasing() -> float:
    """What frequencies beyond the first period add, for c ≤ q/1024: 2·Σ |h_m| over m ≥ 512/v.

    h_m are the Fourier coefficients of |cos(θ/2)|^(2a), a = 1/v²; |h_m| ≤ Γ(2a+1)·Γ(m-a) / (π·4^a·Γ(m+a+1)), whose sum
    from m₀ on is Γ(2a+1)·Γ(m₀-a) / (2a·π·4^a·Γ(m₀+a)). It falls in a; a = 1 is its largest, and v ≥ 1/4 is all that
    needs it: for smaller v, the sum is compared with a Gaussian's, term by term.
    """
    a, start = np.linspace(1, 16, 2_000), 512
    sums = [
        math.exp(math.lgamma(2 * x + 1) + math.lgamma(start * math.sqrt(x) - x) - math.lgamma(start * math.sqrt(x) + x))
        / (2 * x * math.pi * 4**x)
        for x in a
    ]
    assert sums == sorted(sums, reverse=True)
    return 2.001 * sums[0]


def moment(s: float) -> float:
    """M(s), rounded up."""
    return max((1 + math.exp(-s)) / 2 + ROUNDING, above(s) + aliasing())


def soundness_bits(rows: int, low: float, s: float) -> float:
    """Pr[‖Rw mod q‖² ≤ low·c²] ≤ 2^-bits."""
    return -(s * low + rows * math.log(moment(s))) / math.log(2)


def completeness_bits(rows: int, high: float) -> float:
    """Pr[‖Rw‖² ≥ high·b²] ≤ 2^-bits for ‖w‖ ≤ b: e^-(T-N/2)·(2T/N)^(N/2)."""
    return ((high - rows / 2) - rows / 2 * math.log(2 * high / rows)) / math.log(2)


@pytest.mark.parametrize("rows", LIMITS)
def test_an_honest_update_is_within_the_upper_limit_but_for_2_to_the_minus_40(rows: int) -> None:
    assert completeness_bits(rows, LIMITS[rows][1] / 10) >= 40
    assert completeness_bits(rows, LIMITS[rows][1] / 10 - 0.2) < 40.05  # and the limit is no larger than it need be


@pytest.mark.parametrize("rows", LIMITS)
def test_what_is_within_the_lower_limit_is_within_the_guarantee_but_for_2_to_the_minus_128(rows: int) -> None:
    assert soundness_bits(rows, LIMITS[rows][0] / 10, BEST[rows]) >= 128
