"""Draws trials of tasks that run one protocol alone: rounds that only serve retrievals, or only find unions."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from fsl_async import Dense, Sparse, Task
from parties.testing.faults import AtTime, AtTransition, Crash, Partition, SlowDisk
from parties.testing.machines import declared
from parties.testing.round_faults import AbortRound, Fault
from parties.testing.trials.drawing import MOMENTS, closed, ordinary_faults, sampled
from parties.testing.trials.scenario import NAMES, Scenario, Trial

__all__ = ["ALONE_FROM", "draw_alone"]

ALONE_FROM = 2_000_000
"""From this seed on, the task of every trial of the simulation runs one protocol alone; none before does."""


def draw_alone(seed: int) -> Trial:
    """The trial of a seed whose task runs one protocol alone.

    Example:
        >>> run(draw_alone(11)).violations
        ()
    """
    rng = Random(f"{seed}/alone")
    retrieves = rng.random() < 0.5
    rows, select, width = rng.choice((16, 40, 64)), rng.randint(1, 3), rng.choice((1, 2))
    security: Literal["verified", "semi-honest"] = "verified" if rng.random() < 0.5 else "semi-honest"
    if retrieves:
        dense = (Dense("head", size=rng.randint(1, 4)),) if rng.random() < 0.5 else ()
        task = Task(
            name="laboratory",
            protocol="psr",
            blocks=(Sparse("items", rows=rows, select=select, width=width), *dense),
            security=security,
            retrievals=rng.choice((1, 2, 8)),
            max_clients=len(NAMES),
        )
    else:
        task = Task(
            name="laboratory",
            protocol="psu",
            blocks=(Sparse("items", rows=rows, select=select),),
            security=security,
            min_clients=2,
            max_clients=len(NAMES),
        )
    scenario = Scenario(task, rng.choice((2, 3, 4)), rng.choice((1, 2, 3)), rng.choice((5.0, 20.0)))
    faults = [] if rng.random() < 0.2 else list(ordinary_faults(rng, scenario))
    if retrieves and rng.random() < 0.6:
        faults += _of_retrievals(rng)
    if retrieves:
        faults += _given_up(Random(f"{seed}/given up"), scenario.seconds)
    trial = Trial(seed, scenario, tuple(dict.fromkeys((*faults, *closed(seed)))))
    return trial if retrieves else sampled(trial)


def _of_retrievals(rng: Random) -> Iterator[Fault]:
    """A server dies around a transition of such a round, or an operator aborts it."""
    party = rng.choice(("S0", "S1"))
    at = rng.choice(declared("psr"))
    yield Crash(party, AtTransition(*at, rng.choice(MOMENTS)), round(2 ** rng.uniform(-4, 5), 3))
    if at.after == "Aborted":
        yield AbortRound(rng.choice(("S0", "S1")), AtTime(round(rng.uniform(0.3, 6.0), 3)))


def _given_up(rng: Random, seconds: float) -> Iterator[Fault]:
    """In some trials a server opens, and so closes, late; one hears nothing of the other; and one of them gives up."""
    if rng.random() >= 0.3:
        return
    first, second = rng.sample(("S0", "S1"), 2)
    deaf, unheard = rng.sample(("S0", "S1"), 2)
    yield SlowDisk(second, 0.0, 4.0, round(rng.uniform(0.3, 2.0), 3))
    yield Partition(unheard, deaf, round(0.6 * seconds, 3), round(seconds * rng.uniform(1.0, 3.0), 3))
    closes = AtTransition("psr", "Open", "CloseRound", "Closed", "after write")
    later = AtTime(round(seconds * rng.uniform(1.0, 2.4), 3))
    yield AbortRound(rng.choice((first, second)), rng.choice((closes, later, later)))
