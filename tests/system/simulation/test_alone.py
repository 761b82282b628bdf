"""Worlds whose task runs one protocol alone: drawn from seeds, and made for the transitions of their machine."""

from dataclasses import replace

import pytest

from fsl_async import Sparse, Task
from parties.testing.machines import declared
from parties.testing.recorder import Transition
from parties.testing.trials import Scenario, Trial
from parties.testing.trials.drawing_variants import ALONE_FROM, draw_alone
from parties.testing.trials.safety_checks import read_the_last_union
from tests.support.cases import often

from .malice import draw, run
from .reaching import crash_points, search
from .ways_of_retrievals import RETRIEVING


@pytest.mark.parametrize("seed", often(4, range(10)))
def test_tasks_of_one_protocol_keep_the_rules(seed: int) -> None:
    assert run(draw_alone(seed)).violations == ()


def test_both_kinds_are_drawn() -> None:
    tasks = [draw_alone(seed).scenario.task for seed in range(20)]
    assert {task.protocol for task in tasks} == {"psr", "psu"}


def test_seeds_from_two_million_on_run_one_protocol_alone() -> None:
    """And their clients are drawn now and then, where there is something to be drawn for."""
    tasks = [draw(seed).scenario.task for seed in range(ALONE_FROM, ALONE_FROM + 40)]
    assert {(task.protocol, task.sample is not None) for task in tasks} == {
        ("psr", False),
        ("psu", False),
        ("psu", True),
    }
    assert draw(ALONE_FROM - 1).scenario.task.protocol == "ssa"


def test_clients_read_the_last_union_and_no_earlier_one() -> None:
    task = Task(name="seen", protocol="psu", blocks=[Sparse("items", rows=64, select=3)], min_clients=2, max_clients=5)
    case = run(Trial(7, Scenario(task, clients=2, rounds=3, seconds=20.0), ())).case
    read = [read for ledger in case.ledgers.values() for read in ledger.read]
    assert {read.known for read in read} >= {1, 2}
    assert not list(read_the_last_union(case))
    first = next(read for read in read if read.known == 1)
    case.ledgers["anna"].read.append(replace(first, known=2))
    assert len(list(read_the_last_union(case))) == 1


def test_there_is_a_way_to_every_transition_of_retrievals() -> None:
    assert set(RETRIEVING) == set(declared("psr"))


@pytest.mark.parametrize("goal", RETRIEVING, ids=str)
def test_a_transition_of_retrievals_is_reached(goal: Transition) -> None:
    found = search(goal, range(12))
    assert (goal in found.reached, found.failures) == (True, ())


@pytest.mark.parametrize("place", range(0, 90, 9))
def test_a_server_dies_where_it_is_to(place: int) -> None:
    points = [point for point in crash_points() if point[1].machine == "psr"]
    found = search(points[place], range(12))
    assert (points[place] in found.reached, found.failures) == (True, ())
