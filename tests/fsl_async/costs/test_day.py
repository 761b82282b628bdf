"""A day that is played: against closed forms, and that nobody is lost or counted twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task
from fsl_async.costs.day import Crowd, arrivals_of, hours_chart, play_all_at_once, play_day, play_stream
from fsl_async.costs.scaling import ANOTHER_MACHINE, Host, Stage, capacity, load_of
from fsl_async.costs.workers import Workers
from fsl_async.errors import MisuseError

LARGE = load_of(Task(name="large", blocks=(Sparse("items", rows=2**20, select=10_486),), ring=Ring(64)))


@pytest.mark.parametrize("load", [0.3, 0.6])
def test_one_queue_waits_as_long_as_the_closed_form_says(load: float) -> None:
    """M/D/1: random arrivals, a fixed time of service, one lane; ρ·s / 2(1 - ρ) on average."""
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1.0, size=20_000))
    seen = play_stream(arrivals, [Stage("writer", load)]).parts[0]
    assert seen.mean == pytest.approx(load * load / (2 * (1 - load)), rel=0.06)
    assert seen.busy == pytest.approx(load, rel=0.03)


def test_regular_arrivals_below_capacity_never_wait() -> None:
    seen = play_stream(np.arange(1000.0), [Stage("files", 1.9, lanes=2), Stage("writer", 0.99)])
    assert [part.mean for part in seen.parts] == [0.0, 0.0]
    assert seen.seconds == pytest.approx(999 + 1.9 + 0.99)


def test_a_line_of_parts_takes_what_its_slowest_part_does() -> None:
    parts = [Stage("files", 3.0, lanes=4), Stage("writer", 1.0), Stage("evaluation", 1.0, lanes=2)]
    seen = play_all_at_once(100, parts)
    assert seen.seconds == pytest.approx(3.0 + 100 * 1.0 + 1.0, rel=0.01)


def test_parts_that_compute_share_the_processors() -> None:
    parts = [Stage("files", 1.0, lanes=8), Stage("writer", 1.0), Stage("disk", 1.0, lanes=8, computes=False)]
    assert play_all_at_once(60, [*parts, Stage("processors", 2.0, lanes=3)]).seconds == pytest.approx(60, rel=0.1)
    assert play_all_at_once(60, [*parts, Stage("processors", 2.0, lanes=1)]).seconds == pytest.approx(121)


ON_WORKERS = (
    Host(16, link=1e10, workers=Workers(1, 4)),
    Host(16, workers=Workers(3, 16)),
    Host(2, workers=Workers(2, 2, network=1e8)),
)


@pytest.mark.parametrize("host", [Host(2), Host(4), Host(16), Host(64), *ON_WORKERS])
def test_clients_that_come_all_at_once_take_what_the_model_says(host: Host) -> None:
    limit = capacity(LARGE, host, ANOTHER_MACHINE, 400)
    assert play_all_at_once(400, limit.stages).seconds == pytest.approx(limit.collecting, rel=0.05)


def played(host: Host, **changes):
    limit = capacity(LARGE, host, ANOTHER_MACHINE, 500)
    crowd = replace(Crowd(clients=500, rounds=6, seed=3), **changes)
    return play_day(crowd, limit.stages, LARGE.size, limit.ending)


@pytest.mark.parametrize("changes", [{}, {"slow": 0.9, "upload": 1e5}, {"leaving": 1.0}, {"rounds": 1}, {"swing": 0.0}])
def test_everybody_is_counted_or_left_or_came_too_late(changes: dict) -> None:
    day = played(Host(4), **changes)
    assert day.arrived == 500 * changes.get("rounds", 6) == sum(day.arrivals)
    assert day.arrived == day.counted + day.left + day.unserved
    assert sum(counted for _, counted in day.rounds) == day.counted
    assert {part.served for part in day.passage.parts} == {day.counted}


@pytest.mark.parametrize("host", ON_WORKERS)
def test_a_day_with_workers_counts_whoever_comes_and_adds_in_time(host: Host) -> None:
    day = played(host)
    assert day.arrived == day.counted + day.left + day.unserved
    assert day.counted > 2_500
    seen = {part.part: part.served for part in day.passage.parts}
    assert seen["evaluation"] == seen["partial sums"] == seen["network of the workers"] == day.counted


def test_workers_that_are_too_slow_make_the_day_s_rounds_wait_for_them() -> None:
    host = Host(16, workers=Workers(1, 1, network=1e6))
    day = played(host, rounds=12, upload=1e9)
    assert day.passage.slowest.part == "network of the workers"
    assert max(seconds for seconds, _ in day.rounds) > 3 * 3600 > 24 * 3600 / 12


def test_slow_clients_miss_their_round_and_come_again() -> None:
    assert played(Host(4), slow=0.0).repeated < played(Host(4), slow=1.0, upload=1e5).repeated
    assert played(Host(4), leaving=1.0).counted == 0


def test_a_server_that_is_too_slow_makes_clients_wait_and_fewer_rounds() -> None:
    slow = tuple(
        replace(stage, work=1000 * stage.work) for stage in capacity(LARGE, Host(2), ANOTHER_MACHINE, 1).stages
    )
    day = play_day(Crowd(clients=4000, rounds=24, upload=1e9), slow, LARGE.size, 1.0)
    assert len(day.rounds) < 24
    assert day.passage.slowest.mean > 60
    assert day.arrived == day.counted + day.left + day.unserved


def test_the_same_seed_plays_the_same_day() -> None:
    assert played(Host(2)) == played(Host(2))
    assert played(Host(2)) != played(Host(2), seed=4)


def test_most_come_at_the_peak() -> None:
    hours = np.bincount((arrivals_of(Crowd(20_000, peak=12.0)) // 3600).astype(int), minlength=24)
    assert hours[11:13].min() > 5 * hours[[0, 23]].max()
    assert arrivals_of(Crowd(20_000, swing=0.0))[10_000] == pytest.approx(43_200, rel=0.03)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"clients": 0}, "at least 1 client"),
        ({"rounds": 0}, "1 to 10000"),
        ({"clients": 300_000}, "at most 300,000"),
        ({"slow": 1.1}, "slow"),
        ({"leaving": -0.1}, "leaving"),
        ({"upload": 0.0}, "upload"),
    ],
)
def test_days_out_of_range_are_refused(changes: dict, expected: str) -> None:
    with pytest.raises(MisuseError, match=expected):
        replace(Crowd(clients=500, rounds=6), **changes)


def test_bars_are_as_high_as_their_values() -> None:
    assert hours_chart([0, 1, 4, 8]) == "·▁▄█"
    assert hours_chart([]) == ""
