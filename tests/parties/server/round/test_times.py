"""A round's time: every second is somewhere, and a restart is no time of computing."""

from __future__ import annotations

import pytest

from fsl_async.errors import StorageError
from fsl_async.protocols import psr, ssa
from parties.server.round.times import ACTIVITIES, Stopwatch
from parties.status import RoundTimes
from parties.storage.store import MemoryStore, Put

KEY = "round-00000003/times"
DAY = [
    ("Open", "Closed", 100.0),
    ("Closed", "Rostered", 102.0),
    ("Rostered", "Proved", 109.0),
    ("Proved", "Verified", 110.0),
    ("Verified", "Committed", 110.5),
    ("Committed", "Revealed", 111.0),
]


@pytest.mark.parametrize("machine", [ssa, psr])
def test_every_state_has_its_activity_or_is_an_end(machine):
    unfinished = {state.__name__ for state in machine.ACCEPTS if state not in machine.MACHINE.final}
    assert unfinished <= ACTIVITIES.keys()
    assert not {state.__name__ for state in machine.MACHINE.final} & ACTIVITIES.keys()


def test_the_time_of_each_state_goes_to_what_the_server_did_in_it():
    watch = Stopwatch(10.0, KEY)
    assert watch.times("Open", 40.0) == RoundTimes(collecting=30.0)
    for state, after, end in DAY:
        watch.adopt(watch.moved(state, after, end))
    assert watch.times("Revealed", 111.0) == RoundTimes(collecting=90.0, computing=7.5, waiting=3.5)
    assert watch.times("Revealed", 113.0).waiting == 5.5
    assert watch.times("Done", 999.0) == watch.times("Aborted", 111.0), "it is over"
    assert (watch.since("Open"), watch.since("Revealed")) == (10.0, 100.0)


def test_a_clock_that_is_put_back_takes_no_time_away():
    watch = Stopwatch(10.0, KEY)
    assert watch.times("Open", 5.0) == RoundTimes()
    watch.adopt(watch.moved("Open", "Closed", 5.0))
    assert watch.times("Closed", 8.0) == RoundTimes(waiting=3.0)


async def restarted(store: MemoryStore, state: str, now: float) -> Stopwatch:
    watch = Stopwatch(10.0, KEY)
    await watch.resume(store, state, now)
    return watch


async def test_a_restart_while_clients_are_awaited_is_time_of_collecting():
    watch = await restarted(MemoryStore(), "Open", 500.0)
    assert watch.times("Open", 510.0) == RoundTimes(collecting=500.0)


async def test_a_restart_later_is_time_of_its_own():
    store, watch = MemoryStore(), Stopwatch(10.0, KEY)
    for state, after, end in DAY[:2]:
        measured = watch.moved(state, after, end)
        await store.commit(*watch.changes(measured))
        watch.adopt(measured)
    assert watch.changes(watch.moved("Rostered", "Rostered", 105.0)) == [], "nothing has moved"
    again = await restarted(store, "Rostered", 3702.0)
    assert again.times("Rostered", 3704.0) == RoundTimes(
        collecting=90.0, computing=2.0, waiting=2.0, interrupted=3600.0
    )
    assert again.since("Rostered") == 100.0


async def test_what_cannot_be_read_is_named():
    store = MemoryStore()
    await store.commit(Put(KEY, b"\xc1"))
    with pytest.raises(StorageError, match=r"round-00000003/times"):
        await restarted(store, "Rostered", 11.0)
