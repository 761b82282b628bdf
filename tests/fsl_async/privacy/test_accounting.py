"""What rounds cost: against known figures, against the accountant of the extra, and the refusals of the setting."""

import math
from importlib import import_module

import pytest

from fsl_async import MisuseError, Privacy
from fsl_async.privacy.accounting import MOST_ROUNDS, epsilon, noise_for, rounds_within
from tests.support.cases import in_turn

CASES = [(0.69, 1, 1e-6), (1.27, 1, 1e-6), (6.89, 100, 1e-6), (23.83, 100, 1e-6), (45.31, 100, 1e-9), (2.0, 7, 1e-3)]


@pytest.mark.parametrize(
    ("noise", "rounds", "expected"),
    [(0.69, 1, 8), (1.27, 1, 4), (2.38, 1, 2), (4.53, 1, 1), (6.89, 100, 8), (12.7, 100, 4), (23.8, 100, 2)],
)
def test_figures_that_are_known(noise: float, rounds: int, expected: float) -> None:
    assert epsilon(noise, rounds, 1e-6) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(("noise", "rounds", "delta"), CASES)
def test_no_order_gives_less(noise: float, rounds: int, delta: float) -> None:
    cost = rounds / (2 * noise**2)
    orders = (1 + 10 ** (step / 500) for step in range(-2000, 4000))
    least = min(a * cost + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1) for a in orders)
    assert epsilon(noise, rounds, delta) == pytest.approx(least, rel=1e-4)
    assert epsilon(noise, rounds, delta) <= least


@pytest.mark.parametrize(("noise", "rounds", "delta"), CASES)
def test_the_accountant_agrees(noise: float, rounds: int, delta: float) -> None:
    accounting, rdp = import_module("dp_accounting"), import_module("dp_accounting.rdp")
    orders = [1 + 10 ** (step / 200) for step in range(-400, 800)]
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(accounting.GaussianDpEvent(noise), rounds)
    assert epsilon(noise, rounds, delta) == pytest.approx(accountant.get_epsilon(delta), abs=0.001)


def test_rounds_add_up_and_noise_helps() -> None:
    spent = [epsilon(5.0, rounds, 1e-6) for rounds in range(20)]
    assert spent[0] == 0
    assert spent == sorted(set(spent))
    assert epsilon(6.0, 10, 1e-6) < spent[10]
    assert epsilon(5.0, 1, 0.999999) == 0
    with pytest.raises(MisuseError, match="from 0 on"):
        epsilon(5.0, -1, 1e-6)


@pytest.mark.parametrize(("noise", "budget"), [(12.7, 4.0), (1.0, 6.0), (45.31, 1.0), (0.69, 8.0)])
def test_a_budget_lasts_as_long_as_it_is_not_exceeded(noise: float, budget: float) -> None:
    rounds = rounds_within(noise, 1e-6, budget)
    assert epsilon(noise, rounds, 1e-6) <= budget < epsilon(noise, rounds + 1, 1e-6)


def test_a_budget_may_last_for_ever() -> None:
    assert rounds_within(1e9, 1e-6, 8.0) == MOST_ROUNDS
    assert rounds_within(0.1, 1e-6, 1.0) == 0


def test_the_noise_for_a_number_of_rounds() -> None:
    noise = noise_for(4.0, 100, 1e-6)
    assert epsilon(noise, 100, 1e-6) <= 4.0 < epsilon(noise - 0.02, 100, 1e-6)


def test_the_last_bits_of_a_logarithm_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [(noise, rounds) for noise in (0.69, 3.7, 12.7) for rounds in (1, 10, 100)]
    here = [epsilon(noise, rounds, 1e-6) for noise, rounds in cases]
    logarithm = math.log

    def elsewhere(number: float) -> float:
        return math.nextafter(logarithm(number), math.inf)

    monkeypatch.setattr("fsl_async.privacy.accounting.math.log", elsewhere)
    assert [epsilon(noise, rounds, 1e-6) for noise, rounds in cases] == here


def test_next_to_no_noise_spends_everything() -> None:
    assert epsilon(1e-200, 1, 1e-6) == math.inf


def test_a_setting() -> None:
    privacy = Privacy(noise=12.7, delta=1e-6, budget=4)
    assert privacy == Privacy(noise=12.7, delta=1e-6, budget=4.0)
    assert privacy.rounds == 100
    assert privacy.epsilon(100) == epsilon(12.7, 100, 1e-6)


@in_turn(
    "field, value, message",
    [
        ("noise", 0, "noise must be above 0"),
        ("noise", -1.0, "noise must be above 0"),
        ("noise", math.inf, "noise must be above 0"),
        ("noise", math.nan, "noise must be above 0"),
        ("noise", True, "noise must be a number"),
        ("noise", "1", "noise must be a number"),
        ("noise", 10**400, "noise must be above 0"),
        ("delta", 0, "delta must be from"),
        ("delta", 1, "delta must be from"),
        ("delta", math.nan, "delta must be from"),
        ("budget", 0, "budget must be above 0"),
        ("budget", math.inf, "budget must be above 0, and finite"),
        ("noise", 1e-200, r"spends ε = inf, more than budget=4; noise=1\.268 lasts for one round"),
        ("noise", 0.1, r"one round with noise=0.1 .* spends ε = 1.*; noise=1\.268 lasts for one round"),
    ],
)
def test_other_numbers_are_refused(field: str, value: float, message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        Privacy(**{"noise": 12.7, "delta": 1e-6, "budget": 4.0} | {field: value})
