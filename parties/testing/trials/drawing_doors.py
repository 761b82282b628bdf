"""Draws trials of servers whose clients come to doors: processes of their own, which are killed at any step."""

from __future__ import annotations

from random import Random

import msgspec

from parties.simulation.network import SERVERS
from parties.testing.faults import AtCommit, AtSend, AtTime, AtWrite, Crash, FaultPoint
from parties.testing.round_faults import Fault
from parties.testing.trials.drawing import MOMENTS, draw
from parties.testing.trials.scenario import Trial
from parties.testing.world import door_names

__all__ = ["DOORS_FROM", "draw_doors"]

DOORS_FROM = 3_000_000
"""From this seed on, at least one server of every trial of the simulation has doors; none before has."""

PUTS = ("/parts/", "/parts/", "/dense/", "/bound/")


def draw_doors(seed: int) -> Trial:
    """The trial of a seed in which one server or both have one door or two.

    Example:
        >>> run(draw_doors(11)).violations
        ()
    """
    rng, trial = Random(f"{seed}/doors"), draw(seed % DOORS_FROM)
    doors = rng.choice(((1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (2, 1), (1, 2), (2, 2)))
    faults = [*trial.faults]
    if rng.random() < 0.8:
        faults += [_death(rng, doors) for _ in range(rng.choice((1, 1, 2, 3)))]
    scenario = msgspec.structs.replace(trial.scenario, doors=doors)
    return Trial(seed, scenario, tuple(dict.fromkeys(faults)))


def _death(rng: Random, doors: tuple[int, int]) -> Fault:
    """A door dies: around a put, around something that it sends, or at some time."""
    index = rng.choice([index for index in range(len(SERVERS)) if doors[index]])
    points: tuple[FaultPoint, ...] = (
        AtTime(round(2 ** rng.uniform(-4, 5), 3)),
        AtWrite(rng.choice(PUTS), rng.randint(1, 4), rng.choice(MOMENTS[:3])),
        AtCommit(rng.randint(1, 12), rng.choice(MOMENTS[:3])),
        AtSend(rng.randint(1, 120), rng.choice(MOMENTS[3:])),
    )
    down = round(2 ** rng.uniform(-4, 5), 3)
    return Crash(rng.choice(door_names(index, doors[index])), rng.choice(points), down)
