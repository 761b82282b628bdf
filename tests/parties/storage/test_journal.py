"""Journals: a machine in a store is where it was, whatever happened in between."""

from collections.abc import Callable

import pytest
import trio

from fsl_async.errors import StorageError
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent
from parties.storage.journal import Journal
from parties.storage.store import Change, MemoryStore, Record
from tests.support.shop import FailingStore


class Counting(State, frozen=True):
    total: int


class Full(State, frozen=True):
    total: int


class Add(Event, frozen=True):
    number: int


MACHINE: Machine[Counting | Full] = Machine(Counting | Full, Add, initial=(Counting,), final=(Full,))


@MACHINE.transition
def _add(state: Counting, event: Add, most: int) -> Counting | Full:
    total = state.total + event.number
    return Counting(total) if total < most else Full(total)


@MACHINE.repetition
def _nothing(state: Full, event: Add, most: int) -> bool:
    return event.number == 0


MACHINE.complete()


@pytest.fixture
def store() -> FailingStore:
    return FailingStore()


@pytest.fixture
def opened(store: FailingStore) -> Callable[[int], object]:
    return lambda first=0: Journal.open(store, "sum", MACHINE, Counting(first), 10)


async def test_a_machine_is_where_it_was(opened) -> None:
    journal = await opened()
    assert await journal.take(Add(4)) == Counting(4)
    assert await journal.take(Add(7)) == Full(11)
    assert (await opened()).state == Full(11)


async def test_the_first_state_is_that_of_the_first_life(opened) -> None:
    assert (await opened(3)).state == (await opened(5)).state == Counting(3)


async def test_what_changes_nothing_is_not_recorded(opened, store) -> None:
    journal = await opened(9)
    await journal.take(Add(0))
    await journal.take(Add(2))
    await journal.take(Add(0))
    with pytest.raises(UnexpectedEvent, match="Add in state Full, which accepts nothing more"):
        await journal.take(Add(1))
    assert len(await store.entries("sum")) == 2


async def test_a_state_is_adopted_only_once_it_is_durable(opened, store) -> None:
    journal = await opened()
    store.error = StorageError("the disk is gone")
    with pytest.raises(StorageError, match="the disk is gone"):
        await journal.take(Add(4))
    assert journal.state == (await opened()).state == Counting(0)


@pytest.mark.parametrize("entry", [b"junk", b"\x81\xa4type\xa4Full"])
async def test_what_cannot_be_read_is_named(entry: bytes, opened, store) -> None:
    await opened()
    await store.commit(Record("sum", entry))
    with pytest.raises(StorageError, match="sum cannot be read"):
        await opened()


async def test_events_that_lead_nowhere_are_damage(opened, store) -> None:
    journal = await opened()
    await journal.take(Add(12))
    await store.commit(Record("sum", b"\x82\xa4type\xa3Add\xa6number\x05"))
    with pytest.raises(StorageError, match="sum cannot be read: Add in state Full"):
        await opened()


class Slow(MemoryStore):
    """Durable at once, and says so a second later."""

    async def commit(self, *changes: Change) -> None:
        await super().commit(*changes)
        await trio.sleep(1.0)


async def test_who_is_cancelled_while_an_event_is_recorded_is_where_the_store_is(autojump_clock) -> None:
    slow = Slow()
    journal = await Journal.open(slow, "sum", MACHINE, Counting(0), 5)
    with trio.move_on_after(0.5):
        await journal.take(Add(2))
    await journal.take(Add(3))
    again = await Journal.open(slow, "sum", MACHINE, Counting(0), 5)
    assert again.state == journal.state == Full(5)
