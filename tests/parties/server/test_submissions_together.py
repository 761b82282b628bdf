"""Submissions that wait at the same time are entered together: one commit, a record for each, and none too many."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
import trio

from fsl_async.errors import StorageError
from fsl_async.protocols import ssa
from fsl_async.protocols.ssa import transitions
from fsl_async.wire.messages import Held
from parties.compute import InlineLane
from parties.schedule import Schedule
from parties.server.round.run import RoundRun
from parties.simulation.network import Network, running
from parties.storage.store import Change, MemoryStore, Record
from tests.support.shop import TASK, model

WAITING = [ssa.Submitted(f"c{number}", bytes([number]) * 32) for number in range(5)]


class Counting(MemoryStore):
    """Remembers the commits of rounds' events, and may refuse them."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[int] = []
        self.fails = False

    async def commit(self, *changes: Change) -> None:
        events = [change for change in changes if isinstance(change, Record) and change.journal.endswith("/events")]
        if events:
            if self.fails:
                raise StorageError("the disk is broken")
            self.commits.append(len(events))
        await super().commit(*changes)


class Shop(Network):
    """Two servers that know nobody; the first one's store counts, and a round closes after so many submissions."""

    def __init__(self, enough: int) -> None:
        self.store, self.enough = Counting(), enough
        super().__init__(TASK, model(), 1, InlineLane())

    def _server_setup(self, index, arrays):
        setup = replace(super()._server_setup(index, arrays), schedule=Schedule(clients=self.enough))
        return setup if index else replace(setup, store=self.store)


@asynccontextmanager
async def opened(enough: int = 100) -> AsyncIterator[tuple[Shop, RoundRun]]:
    shop = Shop(enough)
    async with running(shop, 1):
        run = await shop.servers[0].next_round(0)
        run.driver.taken = lambda event: None  # nothing is there to be evaluated
        shop.store.commits.clear()
        yield shop, run


async def recorded(run: RoundRun) -> list[ssa.RoundEvent]:
    entries = await run.records.store.entries(f"{run.records.prefix}/events")
    return [msgspec.msgpack.decode(entry, type=ssa.RoundEvent) for entry in entries]


async def report_all(shop: Shop, run: RoundRun, events: list[ssa.Submitted]) -> None:
    """Every one by its own task, as clients' connections do; returns when all are taken."""
    async with trio.open_nursery() as nursery:
        for event in events:
            nursery.start_soon(shop.servers[0].inbox.post, run.round_id, event)
    await shop.servers[0].inbox.all_taken()


async def test_all_that_wait_are_one_commit_and_each_has_a_record_of_its_own() -> None:
    async with opened() as (shop, run):
        await report_all(shop, run, WAITING)
        assert shop.store.commits == [5]
        taken = await recorded(run)
        assert sorted(taken, key=lambda event: event.client) == WAITING
        state: ssa.Round = ssa.Open()
        for event in taken:  # as after a restart
            state = transitions.step(state, event, run.aggregation.terms)
        assert state == run.state
        assert run.aggregation.places.names() == {event.client for event in WAITING}


async def test_a_round_that_is_full_in_the_middle_takes_no_more() -> None:
    async with opened(enough=3) as (shop, run):
        await run.take_message(Held(run.round_id, clients=5), memoryview(b""))  # S1 has all that S0 carries
        await run.enter(WAITING)
        assert shop.store.commits == [3, 1]
        assert isinstance(run.state, ssa.Closed)
        assert list(run.state.entries) == ["c0", "c1", "c2"]
        assert not run.aggregation.places.has_entered("c3")


async def test_the_same_again_is_recorded_once() -> None:
    async with opened() as (shop, run):
        await run.enter([WAITING[0], WAITING[1], WAITING[0]])
        await run.enter([WAITING[1], WAITING[2]])
        assert shop.store.commits == [2, 1]
        assert await recorded(run) == WAITING[:3]


async def test_late_ones_are_taken_together_until_the_other_list_is_complete() -> None:
    async with opened() as (shop, run):
        await run.enter(WAITING[:1])
        theirs = {event.client: event.digest for event in WAITING[:4]}
        await run.take(ssa.PeerRoster(theirs))
        assert isinstance(run.state, ssa.Closing)
        shop.store.commits.clear()
        await run.enter([WAITING[4], *WAITING[1:4]])  # the first is on no list that is waited for
        assert shop.store.commits == [3]
        assert isinstance(run.state, ssa.Rostered)
        assert list(run.state.roster) == ["c0", "c1", "c2", "c3"]


async def test_what_cannot_be_recorded_has_changed_nothing_and_may_be_taken_again() -> None:
    async with opened() as (shop, run):
        await run.enter(WAITING[:2])
        before, shop.store.fails = run.state, True
        with pytest.raises(StorageError, match="broken"):
            await run.enter(WAITING[2:])
        assert run.state is before
        assert len(before.entries) == 2
        assert not run.aggregation.places.has_entered("c2")
        shop.store.fails = False
        await run.enter(WAITING[3:])  # in another order than before: nothing of the failure is left
        await run.enter(WAITING[2:])
        assert list(run.state.entries) == ["c0", "c1", "c3", "c4", "c2"]
