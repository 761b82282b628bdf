"""Rounds that are cut into slices of their bins because no worker has room for all: exact, whoever works where."""

import random
from contextlib import AbstractAsyncContextManager
from functools import partial

import numpy as np
import pytest
import trio

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.bin_count import planned
from fsl_async.protocols import partials
from fsl_async.protocols.partials import Added, Give, Joined, Leaving, PartialSum, Put
from fsl_async.server import slicing
from fsl_async.server.slicing import cell_bytes, slices_within, whole
from parties import Client
from parties.cluster.assignments import Assignment, next_join, next_leave
from parties.cluster.orders import SealOrder, decoded
from parties.cluster.worker_service import WorkerService
from parties.events import Warned
from parties.simulation.network import SERVERS
from parties.testing import AtTime, Crash, Fault, SpoiltBlobs, StoppedWorker
from parties.testing.world import World, worker_names
from tests.parties.testing import small_world
from tests.parties.testing.small_world import listening
from tests.support.cases import often

TASK = Task(
    name="cut",
    blocks=(Sparse("items", rows=300, select=8), Dense("head", size=3)),
    ring=Ring(64),
    min_clients=2,
    max_clients=9,
)
MODEL = {"items": np.zeros((300, 1), np.int64), "head": np.zeros(3, np.int64)}
ROWS = [1, 7, 150, 299]
NAMES = [f"client {number}" for number in range(5)]
CELLS = cell_bytes(planned(TASK), whole(planned(TASK)))


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of a test's size has many groups of bins."""
    monkeypatch.setattr(slicing, "LEAVES_OF_GROUP", 20)


async def take_part(client: Client) -> None:
    if client.pending:
        await client.resume()
    else:
        await client.submit({"items": (ROWS, np.ones((4, 1), np.int64)), "head": np.ones(3, np.int64)})
    await client.outcome()


def a_world(*faults: Fault, slices: int = 1, memory: int = 0, **more: object) -> AbstractAsyncContextManager[World]:
    """A world whose workers have twice the memory that a slice takes, of so many, or as much as is said."""
    fitting = (most for most in range(CELLS, 0, -16) if len(slices_within(planned(TASK), most)) == slices)
    return listening(TASK, MODEL, NAMES, *faults, worker_memory=memory or 2 * next(fitting), **more)


settled = partial(small_world.settled, names=NAMES, part=take_part)
exact = partial(small_world.exact, names=NAMES, rows=ROWS)  # so both proofs agree, however each of them was cut


@pytest.fixture
def sealed(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, int]]:
    """The workers' servers, and the slices that they were told to seal."""
    found: set[tuple[str, int]] = set()
    plain = WorkerService.perform

    async def perform(self: WorkerService, action: str, order: bytes) -> object:
        if action == "seal":
            found.add((self._setup.owner.decode(), decoded(order, SealOrder).slice))
        return await plain(self, action, order)

    monkeypatch.setattr(WorkerService, "perform", perform)
    return found


@pytest.mark.parametrize(("workers", "slices"), [((1, 0), 2), ((0, 2), 3), ((3, 1), 7), ((8, 2), 2)])
async def test_every_slice_is_added_by_some_worker(autojump_clock, sealed, workers, slices):
    async with a_world(workers=workers, slices=slices) as made:
        await settled(made)
        exact(made)
    owners = {SERVERS[index] for index in (0, 1) if workers[index]}
    assert sealed == {(owner, number) for owner in owners for number in range(slices)}


@pytest.mark.parametrize("harm", ["altered", "missing"])
async def test_blobs_that_are_damaged_are_waited_for_in_every_slice(autojump_clock, harm):
    async with a_world(SpoiltBlobs("S0.worker-1", 0.0, 40.0, harm), workers=(2, 0), slices=3) as made:
        await settled(made)
        exact(made)


@pytest.mark.parametrize("seed", often(4, range(24)))
async def test_whatever_happens_to_workers_the_sum_is_exact(autojump_clock, seed):
    rng = random.Random(f"{seed}/slices")
    workers = rng.choice([(1, 0), (0, 3), (2, 2), (4, 1)])
    names = [name for index in (0, 1) for name in worker_names(index, workers[index])]
    faults = [Crash(rng.choice(names), AtTime(rng.uniform(0.1, 20)), rng.uniform(0.1, 20)) for _ in range(3)]
    faults += [StoppedWorker(rng.choice(names), rng.uniform(0.1, 10), rng.uniform(1, 60))]
    slices = rng.choice([2, 3, 7])
    async with a_world(*faults, workers=workers, slices=slices, seed=seed, computing=rng.choice([0.0, 0.3])) as made:
        await settled(made)
        exact(made)


async def test_a_worker_with_too_little_memory_is_named_and_not_used(autojump_clock, monkeypatch):
    monkeypatch.setattr(slicing, "LEAVES_OF_GROUP", 10**6)
    async with a_world(workers=(1, 0), memory=CELLS) as made:
        for name in NAMES:
            made.start(name, take_part)
        await trio.sleep(60)
        told = [event.explanation for _, _, event in made.events if isinstance(event, Warned)]
        assert told == [
            "worker S0.worker-1.1 is not used for round 1: it has 0 MiB, and the cells of a slice take 0 MiB; give it "
            "more memory (compute.worker_memory_bytes)"
        ]
        status = made.servers[0].status().engine
        assert status is not None
        assert (status.waiting, status.workers[0].held) == (len(NAMES), 0)
        assert not made.settled[0]


# ---- who works where


def ledgers(*waiting: int, seal: int = 4) -> list[PartialSum]:
    """Ledgers in which so many clients wait."""
    return [
        partials.step(partials.begin(seal), Put(tuple(f"{number}" for number in range(count)))) for count in waiting
    ]


def test_the_free_go_where_the_fewest_are() -> None:
    states = ledgers(0, 3, 0)
    assert next_join(states, ["a", "b"]) == Assignment("a", 1)
    states[1] = partials.step(states[1], Joined("a", 2))
    assert next_join(states, ["a", "b"]) == Assignment("b", 0)
    assert next_join(states, ["a"]) is None


def test_a_slice_without_anybody_gets_a_worker_from_one_with_several() -> None:
    states = ledgers(1, 1)
    for name in ("a", "b"):
        states[0] = partials.step(states[0], Joined(name, 1))
    leave = next_leave(states, closed=False)
    assert leave is not None
    states[0] = partials.step(states[0], Leaving(leave.worker))
    assert next_leave(states, closed=False) is None


def test_a_lonely_worker_changes_slices_when_it_is_worth_it_or_all_are_in() -> None:
    states = ledgers(1, 2)
    states[0] = partials.step(states[0], Joined("a", 1))
    assert next_leave(states, closed=False) is None
    assert next_leave(states, closed=True) == Assignment("a", 0)
    states[1] = partials.step(states[1], Put(("7", "8", "9")))
    assert next_leave(states, closed=False) == Assignment("a", 0)
    states[0] = partials.step(states[0], Leaving("a"))
    (give,) = [effect for effect in partials.effects(states[0]) if isinstance(effect, Give)]
    states[0] = partials.step(states[0], Added("a", give.order.number, give.order.clients, 1))
    assert next_join(states, ["a"]) is None
