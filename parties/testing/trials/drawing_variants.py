"""Draws trials of tasks that run one protocol alone, and of servers with workers.

Rounds of one protocol only serve retrievals, or only find unions. Workers compute sums in processes of their own, which
are killed at any time.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, Literal

import msgspec

from fsl_async import Dense, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.server.slicing import cell_bytes, slices_of
from parties.simulation.network import SERVERS
from parties.testing.faults import AtTime, AtTransition, Crash, Partition, SlowDisk
from parties.testing.machines import declared
from parties.testing.round_faults import AbortRound, Fault, StoppedWorker
from parties.testing.trials.drawing import MOMENTS, closed, draw, ordinary_faults, sampled
from parties.testing.trials.scenario import NAMES, Scenario, Trial, in_pieces
from parties.testing.world import worker_names

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
        blocks = (Sparse("items", rows=rows, select=select, width=width), *dense)
        alone: dict[str, Any] = {"protocol": "psr", "blocks": blocks, "retrievals": rng.choice((1, 2, 8))}
    else:
        alone = {"protocol": "psu", "blocks": (Sparse("items", rows=rows, select=select),), "min_clients": 2}
    task = Task(name="laboratory", security=security, max_clients=len(NAMES), **alone)
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
        shape = planned(task)
        slices = slices_of(shape, 64)
    most = max((cell_bytes(shape, some) for some in slices), default=0)
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
