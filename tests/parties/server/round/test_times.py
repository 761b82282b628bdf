"""A round's time: every second is somewhere, and a restart is no time of computing."""

from itertools import pairwise
from math import inf

import pytest

from fsl_async.errors import StorageError
from fsl_async.protocols import psr, ssa
from parties.server.round.waiting import Stopwatch
from parties.status import RoundTimes
from parties.storage.store import MemoryStore, Put

KEY = "round-00000003/times"
DIGEST = bytes(32)
OPEN, CLOSED, ROSTERED = ssa.Open(), ssa.Closed({}), ssa.Rostered({}, {}, {}, {})
REVEALED = ssa.Revealed({}, {}, DIGEST, DIGEST, DIGEST, {})
DAY = [
    (OPEN, 100.0),
    (CLOSED, 102.0),
    (ROSTERED, 109.0),
    (ssa.Proved({}, {}, {}, {}, {}), 110.0),
    (ssa.Verified({}, {}, {}, {}, {}), 110.5),
    (ssa.Committed({}, {}, {}, {}, DIGEST, DIGEST, {}), 111.0),
]
"""The states of a round, and when each ends."""


@pytest.mark.parametrize("machine", [ssa, psr])
def test_every_state_tells_itself_and_an_end_waits_for_nothing(machine):
    for state in machine.MACHINE.states:
        assert (state.activity is None, state.waits_for == "") == (state in machine.MACHINE.final,) * 2, state
        assert state in machine.MACHINE.final or "said" in vars(state), f"{state} says its last word itself"


def test_the_time_of_each_state_goes_to_what_the_server_did_in_it():
    watch = Stopwatch(10.0, KEY)
    assert watch.times(OPEN, 40.0) == RoundTimes(collecting=30.0)
    for (state, end), (after, _) in pairwise([*DAY, (REVEALED, inf)]):
        watch.adopt(watch.moved(state, after, end))
    assert watch.times(REVEALED, 111.0) == RoundTimes(collecting=90.0, computing=7.5, waiting=3.5)
    assert watch.times(REVEALED, 113.0).waiting == 5.5
    assert watch.times(ssa.Done(DIGEST, {}), 999.0) == watch.times(ssa.Aborted(""), 111.0), "it is over"
    assert (watch.since(OPEN), watch.since(REVEALED)) == (10.0, 100.0)


def test_a_clock_that_is_put_back_takes_no_time_away():
    watch = Stopwatch(10.0, KEY)
    assert watch.times(OPEN, 5.0) == RoundTimes()
    watch.adopt(watch.moved(OPEN, CLOSED, 5.0))
    assert watch.times(CLOSED, 8.0) == RoundTimes(waiting=3.0)


async def restarted(store: MemoryStore, state: ssa.Round, now: float) -> Stopwatch:
    watch = Stopwatch(10.0, KEY)
    await watch.resume(store, state, now)
    return watch


async def test_a_restart_while_clients_are_awaited_is_time_of_collecting():
    watch = await restarted(MemoryStore(), OPEN, 500.0)
    assert watch.times(OPEN, 510.0) == RoundTimes(collecting=500.0)


async def test_a_restart_later_is_time_of_its_own():
    store, watch = MemoryStore(), Stopwatch(10.0, KEY)
    for (state, end), (after, _) in pairwise(DAY[:3]):
        measured = watch.moved(state, after, end)
        await store.commit(*watch.changes(measured))
        watch.adopt(measured)
    assert watch.changes(watch.moved(ROSTERED, ROSTERED, 105.0)) == [], "nothing has moved"
    again = await restarted(store, ROSTERED, 3702.0)
    assert again.times(ROSTERED, 3704.0) == RoundTimes(collecting=90.0, computing=2.0, waiting=2.0, interrupted=3600.0)
    assert again.since(ROSTERED) == 100.0


async def test_what_cannot_be_read_is_named():
    store = MemoryStore()
    await store.commit(Put(KEY, b"\xc1"))
    with pytest.raises(StorageError, match=r"round-00000003/times"):
        await restarted(store, ROSTERED, 11.0)
