"""A round's sum as submissions come in: one alone is added at once, those that wait together; few are read ahead."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import pytest
import trio
import trio.testing

from fsl_async import Dense, Ring, Sparse, Task
from fsl_async.errors import StorageError
from fsl_async.server.aggregation import Submission
from parties.compute import InlineLane
from parties.server.round.accumulation import Accumulator
from tests.support.rounds import Round, add

TASK = Task(
    name="t",
    blocks=(Sparse("a", rows=300, select=5), Dense("d", size=3)),
    ring=Ring(64),
    min_clients=2,
    max_clients=100,
)


class SlowLane(InlineLane):
    """A lane whose every step takes a second of the tests' clock."""

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        await trio.sleep(1)
        await super().run_all(work)


@dataclass
class Scene:
    """A round with stored submissions, and what was seen of its sum."""

    clients: int = 12
    reads: list[str] = field(default_factory=list)
    added: list[tuple[str, float]] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)
    over: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.play = Round(TASK, {"a": np.zeros((300, 1), np.float32), "d": np.zeros(3, np.float32)}, seed=1)
        self.stored = {name: self.submission(number) for number, name in enumerate(self.names)}

    @property
    def names(self) -> list[str]:
        return [f"client-{number:02}" for number in range(self.clients)]

    def submission(self, number: int) -> Submission:
        rows = np.arange(number, number + 5)
        update = {"a": (rows, np.full((5, 1), number + 1)), "d": np.full(3, number)}
        return self.play.submissions(f"client-{number:02}", self.play.plant({"a": rows}), update)[0]

    async def fetch(self, client: str) -> Submission:
        await trio.lowlevel.checkpoint()
        if client in self.lost:
            raise StorageError(f"{client} is not stored")
        self.reads.append(client)
        return self.stored[client]

    def accumulator(self, most: int) -> Accumulator:
        def on_added(client: str, seconds: float) -> None:
            self.added.append((client, seconds))

        return Accumulator(lambda: self.play.start()[0], self.fetch, SlowLane(), most, on_added, self.over)

    @asynccontextmanager
    async def working(self, most: int = 8) -> AsyncIterator[Accumulator]:
        accumulator = self.accumulator(most)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(accumulator.work)
            await trio.testing.wait_all_tasks_blocked()
            yield accumulator
            nursery.cancel_scope.cancel()

    def one_by_one(self, clients: Sequence[str]) -> tuple[dict[str, bytes], bytes]:
        """The entries and the share that come out if they are added one after the other."""
        aggregate = self.play.start()[0]
        entries = {client: add(aggregate, self.stored[client]) for client in clients}
        return entries, aggregate.share()

    def batches(self) -> list[int]:
        """The sizes of the batches: each took three seconds, of which its submissions have equal parts."""
        left, sizes = deque(seconds for _, seconds in self.added), []
        while left:
            size = round(3 / left[0])
            assert [round(3 / left.popleft()) for _ in range(size)] == [size] * size
            sizes.append(size)
        return sizes


async def test_one_that_comes_alone_is_added_at_once(autojump_clock: object) -> None:
    scene = Scene()
    async with scene.working() as accumulator:
        accumulator.put("client-03")
        entries = await accumulator.proofs(frozenset({"client-03"}))
    assert entries == scene.one_by_one(["client-03"])[0]
    assert scene.batches() == [1]
    assert accumulator.seconds == pytest.approx(3)


async def test_those_that_come_meanwhile_are_added_together(autojump_clock: object) -> None:
    scene = Scene()
    async with scene.working(most=8) as accumulator:
        accumulator.put(scene.names[0])
        await trio.sleep(0.5)
        for name in scene.names[1:]:
            accumulator.put(name)
        entries = await accumulator.proofs(frozenset(scene.names))
        async with accumulator.settled(frozenset(scene.names)) as aggregate:
            share = aggregate.share()
    assert (entries, share) == scene.one_by_one(scene.names)
    assert scene.batches() == [1, 8, 3]
    assert accumulator.seconds == pytest.approx(9)
    assert accumulator.added == 12


async def test_no_more_are_read_ahead_than_a_batch_may_have(autojump_clock: object) -> None:
    scene = Scene()
    async with scene.working(most=2) as accumulator:
        for name in scene.names:
            accumulator.put(name)
        await trio.sleep(1.5)  # into the first batch
        first = len(scene.reads)
        assert first <= 2 + 2
        await accumulator.proofs(frozenset(scene.names))
    assert max(scene.batches()) == 2
    assert sum(scene.batches()) == 12


async def test_whoever_is_not_counted_is_taken_out_in_batches(autojump_clock: object) -> None:
    scene = Scene()
    counted = scene.names[:3]
    async with scene.working(most=4) as accumulator:
        for name in scene.names:
            accumulator.put(name)
        await accumulator.proofs(frozenset(scene.names))
        for _ in range(2):  # the second time everybody is out already
            async with accumulator.settled(frozenset(counted)) as aggregate:
                assert aggregate.share() == scene.one_by_one(counted)[1]
    assert sorted(scene.reads) == sorted(scene.names + scene.names[3:])


async def test_what_comes_after_the_sum_is_released_is_dropped(autojump_clock: object) -> None:
    scene = Scene()
    async with scene.working() as accumulator:
        accumulator.put("client-00")
        await accumulator.proofs(frozenset({"client-00"}))
        accumulator.release()
        accumulator.put("client-01")
        await trio.sleep(10)
    assert [client for client, _ in scene.added] == ["client-00"]


async def test_a_submission_that_is_not_stored_ends_the_round_unless_it_is_over(autojump_clock: object) -> None:
    scene = Scene(lost={"client-01"})
    with pytest.RaisesGroup(pytest.RaisesExc(StorageError, match="client-01 is not stored"), flatten_subgroups=True):
        async with scene.working() as accumulator:
            accumulator.put("client-01")
            await trio.sleep(10)
    scene.over.set()
    async with scene.working() as accumulator:
        for name in scene.names[:3]:
            accumulator.put(name)
        await accumulator.proofs(frozenset({"client-00", "client-02"}))
