"""Draws trials of servers whose sums are computed by workers: processes of their own, which are killed at any time."""

from __future__ import annotations

from random import Random

import msgspec

from fsl_async.server.slicing import cell_bytes, slices_of
from parties.simulation.network import SERVERS
from parties.testing.faults import AtTime, Crash
from parties.testing.round_faults import Fault, StoppedWorker
from parties.testing.trials.drawing import draw
from parties.testing.trials.scenario import Scenario, Trial, in_pieces
from parties.testing.world import worker_names

__all__ = ["WORKERS_FROM", "draw_workers"]

WORKERS_FROM = 4_000_000
"""From this seed on, at least one server of every trial of the simulation has workers; none before has."""


def draw_workers(seed: int) -> Trial:
    """The trial of a seed in which one server or both have one worker or more.

    Example:
        >>> run(draw_workers(11)).violations
        ()
    """
    rng, trial = Random(f"{seed}/workers"), draw(seed % WORKERS_FROM)
    workers = rng.choice(((1, 0), (0, 1), (1, 1), (2, 0), (0, 3), (2, 1), (2, 2)))
    faults = [*trial.faults]
    if rng.random() < 0.8:
        faults += [_death(rng, workers) for _ in range(rng.choice((1, 2, 3, 5)))]
    if rng.random() < 0.3:
        faults += [_stop(rng, workers) for _ in range(rng.choice((1, 2)))]
    scenario = msgspec.structs.replace(trial.scenario, workers=workers, workers_answer=rng.random() < 0.5)
    if rng.random() < 0.3:
        scenario = _cut(rng, scenario)
    return Trial(seed, scenario, tuple(dict.fromkeys(faults)))


def _cut(rng: Random, scenario: Scenario) -> Scenario:
    """No worker has room for a whole sum, where it can be cut."""
    task, group = scenario.task, rng.choice((4, 8, 16))
    if task.bound is not None or (task.finds_unions and task.selection == "fixed"):
        return scenario
    scenario = msgspec.structs.replace(scenario, group=group)
    with in_pieces(scenario):
        slices = slices_of(task, 64)
    most = max((cell_bytes(task, some) for some in slices), default=0)
    return msgspec.structs.replace(scenario, worker_memory=rng.choice((4, 6, 10)) * most)


def _death(rng: Random, workers: tuple[int, int]) -> Fault:
    """A worker dies at some time, and comes back with nothing."""
    point = AtTime(round(2 ** rng.uniform(-4, 6), 3))
    return Crash(_one(rng, workers), point, round(2 ** rng.uniform(-4, 5), 3))


def _stop(rng: Random, workers: tuple[int, int]) -> Fault:
    """A worker answers nobody for a while, mostly for so long that it is doubted."""
    return StoppedWorker(_one(rng, workers), round(2 ** rng.uniform(-4, 5), 3), round(2 ** rng.uniform(2, 6), 3))


def _one(rng: Random, workers: tuple[int, int]) -> str:
    index = rng.choice([index for index in range(len(SERVERS)) if workers[index]])
    return rng.choice(worker_names(index, workers[index]))
