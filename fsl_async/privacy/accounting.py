"""What a task says of differential privacy, and what rounds with noise cost together.

Rules: the constants are checked when a value is made; one number has one encoding, so 1 and 1.0 give one task digest; a
budget that does not last for one round is refused here, and not when the first round is over.

Rényi divergences add up, and their sum is turned into (ε, δ).

Removing a client's values changes a sum of integers by a vector of norm at most b. A discrete Gaussian of σ ≥ z·b on
every coordinate makes the Rényi divergence of order α at most α/(2z²) for it, whatever the dimension; what is done with
the noised sum, its reduction modulo 2^l included, adds nothing. Orders are tried from a grid, and each gives a bound
that holds, so that a coarser grid would only be less exact. What comes out is rounded up to 40 bits: the last bits of a
logarithm differ between machines, and neither how many rounds a budget lasts for nor whether a task is read may.

There is no amplification by sampling in it: servers see who takes part.

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), propositions 5 and 12;
Mironov, "Rényi Differential Privacy" (2017), for the sum.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from fsl_async.errors import MisuseError

MOST_ROUNDS: Final = 10**9
"""No task has more."""

NARROWINGS: Final = 60
"""How often the range of orders is narrowed to its golden section: to 10^-12 of it."""


PRECISION_BITS: Final = 40
"""Of an ε."""


def epsilon(noise: float, rounds: int, delta: float) -> float:
    """The ε of so many sums with noise of multiplier z, each of which a client may be in.

        epsilon(0.69, 1, 1e-6)      # 7.99…
        epsilon(6.89, 100, 1e-6)    # 8.00…

    Args:
        noise: z, one server's σ over the bound.
        rounds: how many sums, from 0.
        delta: δ.

    Returns:
        ε, rounded up to 40 bits; infinite where there is next to no noise.
    """
    if rounds < 0:
        raise MisuseError(f"privacy: a number of rounds from 0 on expected, not {rounds}")
    if rounds == 0:
        return 0.0
    cost = rounds / noise / noise / 2
    if cost > _MOST_COST:
        return math.inf
    best = math.sqrt(-math.log(delta) / cost)  # of α - 1, but for the terms of order ln α
    low, high = math.log(best) - 8, math.log(best) + 8
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(NARROWINGS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if _epsilon_at(left, cost, delta) < _epsilon_at(right, cost, delta):
            high = right
        else:
            low = left
    return _rounded_up(max(0.0, _epsilon_at((low + high) / 2, cost, delta)))


_MOST_COST: Final = 1e200
"""Beyond it floats cannot tell what is left."""


def _rounded_up(number: float) -> float:
    mantissa, exponent = math.frexp(number)
    return math.ldexp(math.ceil(math.ldexp(mantissa, PRECISION_BITS)), exponent - PRECISION_BITS)


def _epsilon_at(log_order: float, cost: float, delta: float) -> float:
    """The ε that the order α = 1 + exp(log_order) gives: αρ + ln(1 - 1/α) - (ln δ + ln α)/(α - 1)."""
    above = math.exp(log_order)
    order = 1 + above
    return order * cost + log_order - math.log1p(above) - (math.log(delta) + math.log1p(above)) / above


def rounds_within(noise: float, delta: float, budget: float) -> int:
    """The largest number of rounds whose ε is within a budget."""
    low, high = 0, 1
    while high <= MOST_ROUNDS and epsilon(noise, high, delta) <= budget:
        low, high = high, 2 * high
    high = min(high, MOST_ROUNDS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(noise, middle, delta) <= budget else (low, middle)
    return low


def noise_for(budget: float, rounds: int, delta: float) -> float:
    """The least noise, rounded up to four digits, with which so many rounds are within a budget."""
    low, high = 1e-9, 1e9
    for _ in range(120):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if epsilon(middle, rounds, delta) <= budget else (middle, high)
    digits = 10.0 ** (3 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits


LEAST_DELTA = 1e-300
MOST_NOISE = 1e9


class Privacy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each server adds noise to its share of every sum, so that no sum tells much of any one client.

        task = Task(..., bound=1.0, privacy=Privacy(noise=12.7, delta=1e-6, budget=4.0))
        task.privacy.epsilon(rounds=100)      # 3.99…: what 100 rounds tell of a client that is in all of them

    Args:
        noise: z; each server adds discrete Gaussian noise of z times the task's bound to every weight.
        delta: δ, with which probability ε does not hold; far less than one in the number of clients.
        budget: the largest ε that all rounds together may reach; the round that would exceed it is not opened.
        large_delta: a δ above one in the task's `max_clients` is meant; without it, the task refuses one.

    Raises:
        MisuseError: a number is out of its range, or the budget does not last for one round.
    """

    noise: float
    delta: float
    budget: float
    large_delta: bool = False

    def __post_init__(self) -> None:
        self._check("noise", 0 < self._number("noise") <= MOST_NOISE, f"above 0 and at most {MOST_NOISE:g}")
        self._check("delta", LEAST_DELTA <= self._number("delta") < 1, f"from {LEAST_DELTA:g} to below 1")
        self._check("budget", 0 < self._number("budget") < math.inf, "above 0, and finite")
        if self.rounds == 0:
            enough = noise_for(self.budget, 1, self.delta)
            raise MisuseError(
                f"privacy: one round with noise={self.noise:g} and delta={self.delta:g} spends ε = "
                f"{self.epsilon(1):.3g}, more than budget={self.budget:g}; noise={enough:g} lasts for one round"
            )

    def epsilon(self, rounds: int) -> float:
        """The ε that so many rounds spend of a client that is in all of them."""
        return epsilon(self.noise, rounds, self.delta)

    @property
    def rounds(self) -> int:
        """For how many rounds the budget lasts."""
        return rounds_within(self.noise, self.delta, self.budget)

    def _number(self, field: str) -> float:
        value = getattr(self, field)
        self._check(field, type(value) in (int, float), "a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        msgspec.structs.force_setattr(self, field, number)
        return number

    def _check(self, field: str, fits: bool, expected: str) -> None:
        if not fits:
            raise MisuseError(f"privacy: {field} must be {expected}, not {getattr(self, field)!r}")
