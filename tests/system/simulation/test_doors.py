"""Worlds whose clients come to doors: processes that are killed around every put, send and time, and come back."""

from __future__ import annotations

import msgspec
import pytest

from fsl_async import Task
from parties.testing.faults import AtCommit, AtSend, AtTime, Crash
from parties.testing.trials import Scenario, Trial
from parties.testing.trials.drawing_doors import DOORS_FROM, draw_doors
from parties.testing.world import door_names

from .malice import draw, run

DOWN = 2.0


def of_two(doors: tuple[int, int], *faults: Crash) -> Trial:
    """Two clients that submit in one round."""
    task: Task = draw_doors(1).scenario.task
    task = msgspec.structs.replace(task, min_clients=2)
    return Trial(5, Scenario(task, clients=2, rounds=1, seconds=30.0, doors=doors), faults)


@pytest.mark.parametrize("seed", range(8))
def test_worlds_with_doors_keep_the_rules(seed: int) -> None:
    assert run(draw_doors(seed)).violations == ()


def test_seeds_from_three_million_on_have_doors() -> None:
    trials = [draw(seed) for seed in range(DOORS_FROM, DOORS_FROM + 60)]
    assert {trial.scenario.doors for trial in trials} >= {(1, 0), (0, 1), (1, 1), (2, 2)}
    assert any("door-2" in fault.parties()[0] for trial in trials for fault in trial.faults)
    assert draw(DOORS_FROM - 1).scenario.doors == (0, 0)


@pytest.mark.parametrize("moment", ["before write", "before sync", "after write"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_door_dies_around_each_put(number: int, moment: str) -> None:
    crash = Crash("S0.door-1", AtCommit(number, moment), DOWN)  # type: ignore[arg-type]
    verdict = run(of_two((1, 1), crash))
    assert verdict.violations == ()


@pytest.mark.parametrize("number", [2, 9, 17])
@pytest.mark.parametrize("moment", ["before send", "after send"])
def test_a_door_dies_around_what_it_sends(number: int, moment: str) -> None:
    crash = Crash("S1.door-1", AtSend(number, moment), DOWN)  # type: ignore[arg-type]
    verdict = run(of_two((1, 1), crash))
    assert (verdict.fired, verdict.violations) == ((crash,), ())


def test_door_and_core_die_together() -> None:
    deaths = tuple(Crash(party, AtTime(1.5), DOWN) for party in ("S0", "S0.door-1", "S0.door-2", "S1.door-1"))
    verdict = run(of_two((2, 1), *deaths))
    assert (len(verdict.fired), verdict.violations) == (4, ())


def test_a_door_is_a_process_and_an_address_of_its_own() -> None:
    assert door_names(0, 2) == ("S0.door-1", "S0.door-2")
    processes = run(of_two((2, 1))).case.world.processes
    doors = (*door_names(0, 2), *door_names(1, 1))
    assert set(doors) <= set(processes)
    assert sum(processes[door].commits for door in doors) > 0


def test_a_core_that_dies_as_its_door_dials_ends_no_door() -> None:
    """It could not answer the challenge to its key: found by this seed, which had a door give up for good."""
    assert run(draw_doors(DOORS_FROM + 20)).violations == ()


def test_a_part_that_a_restart_does_not_find_is_no_clients_fault() -> None:
    """It had come before the crash, and its client's message had not: found by this seed, where the client was told
    that it had brought nothing."""
    assert run(draw(3_001_389)).violations == ()
