"""What the tests of the laboratory share: a small task, its model, a client's part in it, and a world to its end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import trio
from trio.testing import MockClock

from fsl_async import Dense, Ring, Sparse, Task
from parties import Client
from parties.outcome import Done
from parties.schedule import Schedule
from parties.testing import Fault, World
from parties.testing.world import world

TASK = Task(
    name="small",
    blocks=[Sparse("items", rows=16, select=2), Dense("head", size=2)],
    ring=Ring(32),
    min_clients=2,
    max_clients=5,
)
MODEL = {"items": np.zeros((16, 1), np.int64), "head": np.zeros(2, np.int64)}


THREE = [f"client {number}" for number in range(3)]


async def take_part(client: Client) -> None:
    """One submission, over as many lives as it takes, and its outcome."""
    if client.pending:
        await client.resume()
    else:
        await client.submit({"items": ([1, 2], np.ones((2, 1), np.int64)), "head": np.ones(2, np.int64)})
    await client.outcome()


def one_round(seed: int, faults: Sequence[Fault] = (), clients: int = 2, patience: float = 60.0) -> World:
    """A world in which so many clients take part in one round; as it was when both servers had settled it."""

    names = [f"client {number}" for number in range(clients)]

    async def run() -> World:
        schedule = Schedule(clients=clients, seconds=30.0, patience=patience, rounds=1)
        async with world(TASK, MODEL, seed, faults, schedule, clients=names) as made:
            await made.wait_listening()
            for name in names:
                made.start(name, take_part)
            with trio.fail_after(1000):
                await made.wait_settled(1)
            return made

    return trio.run(run, clock=MockClock(autojump_threshold=0))


async def settled(made: World, names: Sequence[str] = THREE) -> None:
    """All take part, and both servers settle the round."""
    for name in names:
        made.start(name, take_part)
    with trio.fail_after(2000):
        await made.wait_settled(1)


def exact(made: World) -> None:
    """Both servers have counted all three, once."""
    for index in (0, 1):
        report = made.settled[index][1]
        assert isinstance(report.ending, Done)
        assert sorted(report.counted) == THREE
        np.testing.assert_array_equal(made.models[index][1]["head"], [3, 3])
        np.testing.assert_array_equal(made.models[index][1]["items"][:4, 0], [0, 3, 3, 0])
