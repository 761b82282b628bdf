"""Trials of what servers do with a sum: with every rule models and states are the oracle's, whoever is killed."""

import pytest

from fsl_async.protocols import ssa
from parties.testing.faults import AtTransition, Crash
from parties.testing.trials import Trial, draw
from parties.testing.trials.drawing import RULED_FROM
from parties.testing.trials.rules import RULES

from .malice import run
from .ways import Plan

APPLYING = ("ssa", "Combined", "Applied", "Concluded", "after write")


@pytest.mark.parametrize("rule", RULES)
def test_models_and_states_are_the_oracle_s(rule: str) -> None:
    """Also where a server dies right after it has stored what it made of the second sum."""
    crash = Crash("S0", AtTransition(*APPLYING[:4], APPLYING[4], occurrence=2), 1.0)  # type: ignore[arg-type]
    trial = Trial(3, Plan(rule=rule, rounds=2, clients=3).scenario(), (crash,))
    verdict = run(trial)
    assert (verdict.violations, verdict.fired) == ((), (crash,))
    assert len(verdict.case.world.settled[1]) == 2


def test_the_outcomes_of_unsteady_rules_differ_now_and_then() -> None:
    ends = set()
    for seed in range(6):
        verdict = run(Trial(seed, Plan(rule="own, unsteady").scenario(), ()))
        assert verdict.violations == ()
        ends |= {
            step.after.__class__ for step in verdict.case.world.steps if isinstance(step.event, ssa.PeerConclusion)
        }
    assert ends == {ssa.Done, ssa.Differed}


def test_seeds_from_a_million_on_have_rules() -> None:
    tasks = [draw(seed).scenario.task for seed in range(RULED_FROM, RULED_FROM + 60)]
    assert {task.apply if task.rule != "own" else "own" for task in tasks} == {
        "sum",
        "mean",
        "weighted-mean",
        "row-mean",
        "own",
    }
    assert not any(task.adds for task in tasks)
    assert draw(RULED_FROM - 1).scenario.task.adds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(RULED_FROM, RULED_FROM + 8))
def test_a_drawn_trial_violates_nothing(seed: int) -> None:
    assert run(draw(seed)).violations == ()
