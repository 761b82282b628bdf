"""What `plan` says of noise: its cost over rounds, and how many clients a row needs."""

import warnings

import pytest

from fsl_async import Dense, MisuseError, Privacy, Ring, Sparse, Task
from fsl_async.privacy.utility import least_contributors, outlook, unlearnt
from parties.commands.plan.plan import make_plan, question_about, typical

PRIVACY = Privacy(noise=6.95, delta=1e-6, budget=8.0)
LOUD = Privacy(noise=1e9, delta=1e-6, budget=8.0)


def task(**changes: object) -> Task:
    fields = {
        "name": "noisy",
        "blocks": [Sparse("items", rows=4000, select=418, width=18)],
        "ring": Ring(64, fraction_bits=12),
        "bound": 1.0,
        "privacy": PRIVACY,
        "max_clients": 5000,
    }
    return Task(**(fields | changes))


@pytest.mark.parametrize(("noise", "select", "width", "expected"), [(0.69, 418, 18, 84.6), (0.69, 32, 16, 22.1)])
def test_how_many_clients_a_row_needs(noise: float, select: int, width: int, expected: float) -> None:
    block = Sparse("items", rows=10**5, select=select, width=width)
    assert least_contributors(noise, block) == pytest.approx(expected, abs=0.1)


def test_a_plan_tells_what_rounds_spend_and_what_stands_out() -> None:
    said = make_plan(question_about(task(), clients=0, rounds=100, union=0, dtype="f4"), typical(100, 100, 1000, 20, 4))
    told = said.why[-1]
    assert "spends ε = 0.633 in the first round, and 7.92 in 100 (δ = 1e-06)" in told
    assert "the budget lasts for 101 rounds" in told
    assert "about so many clients update it alike: 853 of 'items'" in told


def test_more_rounds_than_the_budget_lasts_for_are_told() -> None:
    assert "8.81 in 120, which is more than the budget of 8" in outlook(task(), 120)
    assert outlook(task(privacy=None), 120) == ""
    assert "A row stands out" not in outlook(task(blocks=[Dense("head", size=3)]), 5)


def test_noise_that_leaves_nothing_to_learn_is_warned_of_and_is_the_verdict() -> None:
    with pytest.warns(UserWarning, match=r"task: noise leaves nothing to learn of 'items': .* 853 of 'items'"):
        few = task(max_clients=852, min_clients=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = make_plan(question_about(few, clients=0, rounds=9, union=0, dtype="f4"), typical(100, 100, 1000, 20, 4))
        assert not said.worth
    assert said.verdict.startswith("Not worth it: noise leaves nothing to learn of 'items'")
    assert unlearnt(task(max_clients=853)) == unlearnt(task(privacy=None)) == ""


def test_a_delta_above_one_in_the_clients_is_refused_unless_it_is_meant() -> None:
    large = {"noise": 6.95, "budget": 8.0, "delta": 1 / 4000}
    with pytest.raises(MisuseError, match=r"delta=0.00025 is more than 1/max_clients = 0.0002: .* large_delta=True"):
        task(privacy=Privacy(**large))
    assert task(privacy=Privacy(**large, large_delta=True)).privacy.large_delta
    assert not task(privacy=Privacy(**large), max_clients=4000).privacy.large_delta


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bound": None}, "privacy needs a bound"),
        ({"alignment": "union"}, "alignment='union' contradicts privacy: the union shows which"),
        ({"privacy": 3.0}, "privacy must be a Privacy, not 3.0"),
        (
            {"privacy": LOUD, "ring": Ring(64, fraction_bits=30), "bound_proof": "projected"},
            "privacy.noise=1e.09 could wrap 64 bits",
        ),
        ({"protocol": "psu", "ring": None, "bound": None}, "privacy=.* contradicts protocol='psu'"),
        ({"protocol": "psr", "ring": None, "bound": None}, "privacy=.* contradicts protocol='psr'"),
    ],
)
def test_a_task_that_noise_contradicts_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        task(**changes)


def test_noise_on_counts_must_fit_their_words() -> None:
    counted = {"min_contributors": 3, "lying_clients": 0, "ring": Ring(128, fraction_bits=20)}
    assert task(**counted).doses.counts == 450
    with pytest.raises(MisuseError, match="on the counts of contributors could wrap 32 bits"):
        task(**counted, privacy=Privacy(noise=1e7, delta=1e-6, budget=8.0))


def test_a_task_with_noise_is_read_back_as_it_was() -> None:
    assert Task.parse(task().canonical(), "a test") == task()
    assert task(privacy=Privacy(noise=6.95, delta=1e-6, budget=8)).digest() == task().digest()
