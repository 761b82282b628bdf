"""Trials: a seed becomes a scenario and a plan of faults, runs in a simulated world, and is judged by checks.

    trial = draw(seed)           # the task, its clients and the faults: a value that is printed, stored and shrunk
    verdict = run(trial)         # violations, and what was covered

A trial holds all that decides what happens; running it again gives the same transcript.
"""

from parties.testing.trials.case import Case, Violation
from parties.testing.trials.checks import CHECKS, check_all
from parties.testing.trials.drawing import draw
from parties.testing.trials.members import Member
from parties.testing.trials.running import Malice, Verdict, run, shrink
from parties.testing.trials.scenario import Scenario, Trial

__all__ = [
    "CHECKS",
    "Case",
    "Malice",
    "Member",
    "Scenario",
    "Trial",
    "Verdict",
    "Violation",
    "check_all",
    "draw",
    "run",
    "shrink",
]
