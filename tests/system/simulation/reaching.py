"""Directed trials: made for one crash point or one transition each, tried until that is reached, or for long enough.

What chance does not bring in thousands of seeds is brought about here: `ways` says how. A crash point counts as reached
only when a server has died there, as the injector has seen it; a transition when a machine has taken it. Every trial is
checked as any other, and one that fails can be run again from its file.
"""

import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import msgspec

from parties.simulation.network import SERVERS
from parties.testing.faults import AtTransition, Crash
from parties.testing.injector import CrashPoint
from parties.testing.machines import MACHINES, declared
from parties.testing.recorder import Transition
from parties.testing.trials import Trial
from parties.testing.trials.drawing import MOMENTS
from parties.testing.trials.drawing_variants import WORKERS_FROM

from .malice import draw, judged
from .ways import LIKELIER, OTHER_WAYS, SILENT, WAYS, Chance, meet_again
from .ways_of_counting import COUNTING, SILENT_COUNTING
from .ways_of_retrievals import RETRIEVING, SILENT_RETRIEVALS
from .ways_of_workers import SUMMING

TRIES = 200
"""How often a goal is tried before it counts as not reached."""

WAVE = 8
"""Goals per worker that are searched for before it is looked at what else they have reached."""

Goal: TypeAlias = CrashPoint | Transition


@dataclass(frozen=True)
class Search:
    """What came of the trials for one goal.

    Attributes:
        goal: what they were made for.
        tries: how many there were.
        trial: the last of them.
        failures: what was wrong with that.
        reached: all that was reached by any of them.
        seconds: what they took.
    """

    goal: Goal
    tries: int
    trial: Trial
    failures: tuple[str, ...]
    reached: frozenset[Goal]
    seconds: float


# ---- goals


def crash_points() -> list[CrashPoint]:
    """Every point at which a server may die: around each transition of its toss and its round."""
    return [
        (server, transition, moment)
        for machine in ("toss", "sampling", "ssa", "psr")
        for transition in declared(machine)
        for server in SERVERS
        for moment in MOMENTS
    ]


def transitions() -> list[Transition]:
    """Every transition that any machine declares."""
    return [transition for machine in MACHINES for transition in declared(machine)]


def as_text(goal: Goal) -> str:
    """A goal as reports have it."""
    if isinstance(goal, Transition):
        return str(goal)
    server, transition, moment = goal
    return f"{server} {moment}: {transition}"


# ---- trials


def trial_for(goal: Goal, number: int) -> Trial:
    """The trial that is made for a goal at its n-th try."""
    rng = Random(f"{goal}/{number}")
    if isinstance(goal, Transition):
        return _trial_for_transition(goal, number, rng)
    server, transition, moment = goal
    chance = Chance(rng, server)
    plan = {**WAYS, **COUNTING, **RETRIEVING}[transition](chance)
    faults = [*plan.faults, Crash(server, AtTransition(*transition, moment), chance.between(0.1, 3.0))]
    if moment in ("before send", "after send") and transition in (*SILENT, *SILENT_COUNTING, *SILENT_RETRIEVALS):
        faults += meet_again(chance, transition)
    return Trial(number, plan.scenario(), tuple(faults))


def _trial_for_transition(goal: Transition, number: int, rng: Random) -> Trial:
    ways = {**WAYS, **COUNTING, **RETRIEVING, **SUMMING, **OTHER_WAYS}
    if goal not in ways:
        if goal.machine == "partials":
            return draw(WORKERS_FROM + number)
        changes = LIKELIER.get(goal.machine, {})
        return _likelier(draw(number), changes if number % 2 else {})
    plan = ways[goal](Chance(rng, rng.choice(SERVERS)))
    return Trial(number, plan.scenario(), plan.faults)


def _likelier(trial: Trial, changes: Mapping[str, str]) -> Trial:
    """The same trial with other settings in its task, and more rounds; with a union it counts no contributors."""
    scenario = trial.scenario
    uncounted = {"min_contributors": None, "lying_clients": 1} if "alignment" in changes else {}
    task = msgspec.structs.replace(scenario.task, **changes, **uncounted)
    return msgspec.structs.replace(trial, scenario=msgspec.structs.replace(scenario, task=task, rounds=3))


def search(goal: Goal, numbers: range = range(TRIES)) -> Search:
    """Try until a goal is reached, a trial fails, or there were enough.

    Args:
        goal: what is to be reached.
        numbers: of the tries, at least one.
    """
    begun, reached = time.monotonic(), frozenset[Goal]()
    for number in numbers:
        trial = trial_for(goal, number)
        verdict, failures = judged(trial)
        if verdict is not None:
            reached |= verdict.crash_points | verdict.transitions
        if failures or goal in reached:
            break
    tries = number + 1 - numbers.start
    return Search(goal, tries, trial, failures, reached, time.monotonic() - begun)


# ---- all of them


def reach(goals: Iterable[Goal], workers: int, numbers: range = range(TRIES)) -> Iterator[Search]:
    """Search for goals, a few at a time; one that was reached on the way to others is not searched for any more."""
    left, wave = list(goals), WAVE * workers
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        while left:
            some, left = left[:wave], left[wave:]
            for ended in pool.imap_unordered(_search, [(goal, numbers) for goal in some]):
                left = [goal for goal in left if goal not in ended.reached]
                yield ended


def _search(job: tuple[Goal, range]) -> Search:
    return search(*job)
