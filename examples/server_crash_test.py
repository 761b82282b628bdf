"""A test with faults: a server crashes, a connection is cut, and every client with a receipt is counted all the same.

It runs with five seeds; `pytest -p fsl_async.pytest_plugin --fsl-seeds 500 server_crash_test.py` tries five hundred. A
failure prints its seed and a sequence chart.
"""

import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task
from parties import Schedule
from parties.testing import AtCommit, Crash, Cut

TASK = Task(
    name="words",
    blocks=[Sparse("words", rows=1_000, select=10)],
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=10,
)
MODEL = {"words": np.zeros((1_000, 1))}
NAMES = ("ada", "bob", "cleo")


@pytest.mark.trio
@pytest.mark.fsl_seeds(5)
async def test_every_client_with_a_receipt_is_counted(fsl_world, fsl_seed, autojump_clock):
    """S0 crashes at one of its first commits and loses what its disk had not synced; ada's first connection is cut."""
    with_receipt = set()

    async def take_part(client):
        if client.pending:  # it has sent a submission before it was started again: the same bytes, and no others
            await client.resume()
        else:
            await client.submit({"words": ([1, 2, 3], np.ones((3, 1)))})
        with_receipt.add(client.name)
        await client.outcome()

    faults = [
        Crash("S0", AtCommit(5 + fsl_seed, "before sync"), down=2.0),
        Cut("ada", connection=1, outward=True, after=250, lost=True),
    ]
    schedule = Schedule(clients=len(NAMES), rounds=1)
    async with fsl_world(TASK, MODEL, faults=faults, schedule=schedule, clients=NAMES) as world:
        for name in NAMES:
            world.start(name, take_part)
        await world.wait_settled(1)
        for settled in world.settled:
            assert with_receipt <= set(settled[1].clients)
        assert world.models[0][1]["words"][1] == len(world.settled[0][1].clients)
        assert set(faults) == set(world.injector.fired), "a fault never happened"
