"""Worlds in which clients lie about their weight in a mean with a bound: none of them is counted, none suffers."""

import pytest

from tests.support.cases import often

from .malice import WEIGHED_FROM, draw, draw_weighed, run
from .villains import FALSE_WEIGHTS


@pytest.mark.parametrize("seed", often(3, range(6)))
def test_who_lies_about_a_weight_is_in_no_sum(seed: int) -> None:
    assert run(draw_weighed(seed)).violations == ()


def test_both_proofs_and_all_lies_are_drawn() -> None:
    trials = [draw(seed) for seed in range(WEIGHED_FROM, WEIGHED_FROM + 40)]
    assert {trial.scenario.task.bound_proof for trial in trials} == {"exact", "projected"}
    assert {fault.name for trial in trials for fault in trial.faults if hasattr(fault, "name")} >= set(FALSE_WEIGHTS)
