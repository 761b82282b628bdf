"""Whole servers whose sums are computed by workers: exact, whoever is killed, stopped or harmed, and whenever."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
import trio

from parties.events import Warned
from parties.outcome import Done
from parties.server.limits import Schedule
from parties.simulation.network import SERVERS
from parties.testing import AtTime, Crash, Fault
from parties.testing.world import World, world
from tests.parties.testing.small_world import MODEL, TASK, take_part

NAMES = [f"client {number}" for number in range(3)]


@asynccontextmanager
async def a_world(
    *faults: Fault, workers: tuple[int, int] = (2, 1), seed: int = 4, computing: float = 0.0
) -> AsyncIterator[World]:
    schedule = Schedule(clients=len(NAMES), seconds=300.0, rounds=1, patience=600.0)
    made = world(TASK, MODEL, seed, faults, schedule, clients=NAMES, workers=workers, computing=computing)
    async with made as here:
        await here.wait_listening()
        yield here


async def settled(made: World) -> None:
    for name in NAMES:
        made.start(name, take_part)
    with trio.fail_after(2000):
        await made.wait_settled(1)


def exact(made: World) -> None:
    """Both servers have counted everybody, once."""
    for index in (0, 1):
        report = made.settled[index][1]
        assert isinstance(report.ending, Done)
        assert sorted(report.counted) == NAMES
        np.testing.assert_array_equal(made.models[index][1]["head"], [3, 3])
        np.testing.assert_array_equal(made.models[index][1]["items"][:4, 0], [0, 3, 3, 0])


@pytest.mark.parametrize("workers", [(1, 0), (0, 2), (3, 2)])
async def test_workers_add_what_a_server_would(autojump_clock, workers):
    async with a_world(workers=workers) as made:
        await settled(made)
        exact(made)
        for index in (0, 1):
            assert bool(made.clusters[index].calls.get("seal")) == bool(workers[index])
