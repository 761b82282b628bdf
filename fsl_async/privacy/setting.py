"""What a task says of differential privacy: how much noise, and how much of the budget there is.

Rules: the constants are checked when a value is made; one number has one encoding, so 1 and 1.0 give one task digest; a
budget that does not last for one round is refused here, and not when the first round is over.
"""

from __future__ import annotations

import math

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.privacy.accounting import epsilon, noise_for, rounds_within

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
