"""The rules that hold whatever goes wrong, checked from what was observed, not from what the parties say.

safety       at most one sum per round, nobody counted twice, no acknowledged submission lost, nothing revealed below
             the minimum, never two different hints for one tree and epoch, both servers report the same
liveness     once all faults are over, every round ends, and every client learns its outcome
"""

from __future__ import annotations

from inspect import isgeneratorfunction
from types import ModuleType

from parties.testing.trials import liveness_checks, rules, safety_checks, sum_checks
from parties.testing.trials.case import Case, Check, Violation


def _checks_of(*modules: ModuleType) -> dict[str, Check]:
    """By name, in words, the checks of some modules: their own public functions that yield explanations."""
    return {
        name.replace("_", " "): check
        for module in modules
        for name, check in vars(module).items()
        if isgeneratorfunction(check) and check.__module__ == module.__name__ and not name.startswith("_")
    }


CHECKS = _checks_of(safety_checks, liveness_checks, sum_checks, rules)


def check_all(case: Case) -> list[Violation]:
    """All violations; an empty list if there are none."""
    return [Violation(name, explanation) for name, check in CHECKS.items() for explanation in check(case)]
