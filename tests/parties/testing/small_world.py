"""What the tests of the laboratory share: a small task, its model, a client's part in it, and a world to its end."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import trio
from trio.testing import MockClock

from fsl_async import Dense, Ring, Sparse, Task
from parties import Client
from parties.outcome import Done, Model
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
NOTHING_ELSE: Mapping[str, Any] = {}


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


@asynccontextmanager
async def listening(
    task: Task,
    model: Model,
    names: Sequence[str],
    *faults: Fault,
    seed: int = 4,
    schedule: Mapping[str, Any] = NOTHING_ELSE,
    **more: Any,
) -> AsyncIterator[World]:
    """A world whose servers listen, for one round of these clients unless the schedule says otherwise."""
    usual: dict[str, Any] = {"clients": len(names), "seconds": 300.0, "rounds": 1, "patience": 600.0}
    async with world(task, model, seed, faults, Schedule(**(usual | {**schedule})), clients=names, **more) as made:
        await made.wait_listening()
        yield made


async def present(made: World, names: Sequence[str] = THREE) -> list[Client]:
    """Clients that are connected for as long as the world lasts, for a test that makes their calls itself."""
    sending, arriving = trio.open_memory_channel[Client](len(names))

    async def stay(client: Client) -> None:
        await sending.send(client)
        await trio.sleep_forever()

    for name in names:
        made.start(name, stay)
    there = {client.name: client for client in [await arriving.receive() for _ in names]}
    return [there[name] for name in names]


async def settled(made: World, names: Sequence[str] = THREE, part: Callable[..., Any] = take_part) -> None:
    """All take part, and both servers settle the round."""
    for name in names:
        made.start(name, part)
    with trio.fail_after(2000):
        await made.wait_settled(1)


def exact(made: World, names: Sequence[str] = THREE, rows: Sequence[int] = (1, 2)) -> None:
    """Both servers have counted everybody, once, who has added one to each of these rows and to the head."""
    for index in (0, 1):
        report, model = made.settled[index][1], made.models[index][1]
        assert isinstance(report.ending, Done)
        assert sorted(report.counted) == list(names)
        expected = np.zeros(len(model["items"]))
        expected[list(rows)] = len(names)
        np.testing.assert_array_equal(model["items"][:, 0], expected)
        np.testing.assert_array_equal(model["head"], np.full(len(model["head"]), len(names)))
