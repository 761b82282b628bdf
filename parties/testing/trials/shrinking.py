"""Shrinks a failing trial to a short one that fails in the same way.

Faults are removed one by one, then the scenario is made smaller, then the faults' times and numbers rounder, and all of
it is repeated until nothing more can be removed. Every candidate is run, so the result is known to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import msgspec

from fsl_async.errors import MisuseError
from parties.testing.faults import Crash, Cut, Delay, FullDisk, Partition, SlowDisk, SpoiltBlobs, party_of
from parties.testing.round_faults import Fault, Late, StoppedWorker, Straggle
from parties.testing.trials.scenario import NAMES, Scenario, Trial

__all__ = ["shrink"]

Fails = Callable[[Trial], bool]


def shrink(trial: Trial, fails: Fails) -> Trial:
    """The smallest trial found that still fails.

    Args:
        trial: a trial that fails.
        fails: runs a trial, and returns whether it fails in the same way.
    """
    while True:
        smaller = next((candidate for candidate in _candidates(trial) if fails(candidate)), trial)
        if smaller == trial:
            return trial
        trial = smaller


def _candidates(trial: Trial) -> Iterator[Trial]:
    """Trials that are a step smaller, the greatest steps first."""
    faults = trial.faults
    if len(faults) > 3:
        half = len(faults) // 2
        yield _with(trial, faults[:half])
        yield _with(trial, faults[half:])
    for index in range(len(faults)):
        yield _with(trial, (*faults[:index], *faults[index + 1 :]))
    for scenario in _smaller_scenarios(trial):
        yield msgspec.structs.replace(trial, scenario=scenario)
    for index, fault in enumerate(faults):
        for simpler in _simpler(fault):
            yield _with(trial, (*faults[:index], simpler, *faults[index + 1 :]))


def _with(trial: Trial, faults: tuple[Fault, ...]) -> Trial:
    return msgspec.structs.replace(trial, faults=faults)


def _smaller_scenarios(trial: Trial) -> Iterator[Scenario]:
    scenario = trial.scenario
    struck = {party_of(fault) for fault in trial.faults}
    if scenario.rounds > 1:
        yield msgspec.structs.replace(scenario, rounds=scenario.rounds - 1)
    if scenario.clients > 2 and NAMES[scenario.clients - 1] not in struck:
        yield msgspec.structs.replace(scenario, clients=scenario.clients - 1)
    task = scenario.task
    for plainer in ({"alignment": "all"}, {"selection": "adaptive"}, {"security": "semi-honest"}):
        with suppress(MisuseError):  # what the task has beside that may need it
            candidate = msgspec.structs.replace(task, **plainer)
            if candidate != task:
                yield msgspec.structs.replace(scenario, task=candidate)


def _simpler(fault: Fault) -> Iterator[Fault]:
    """The same fault with rounder numbers; every step makes a number smaller or final, so shrinking ends."""
    match fault:
        case Crash(down=down) if down not in (1.0, float("inf")):
            yield msgspec.structs.replace(fault, down=1.0)
        case Partition() | SlowDisk() | FullDisk() | SpoiltBlobs() | StoppedWorker():
            for name in ("begin", "seconds"):
                yield from _rounded(fault, name)
        case Delay() | Late() | Straggle():
            yield from _rounded(fault, "seconds")
        case Cut(after=after) if after > 1:
            yield msgspec.structs.replace(fault, after=after // 2)


def _rounded(fault: Fault, name: str) -> Iterator[Fault]:
    value = getattr(fault, name)
    if value != int(value):
        yield msgspec.structs.replace(fault, **{name: float(int(value))})
