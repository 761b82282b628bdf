"""Whole servers whose blobs are altered, missing, slow, or cut off by a crash: named, waited for, counted once."""

from functools import partial
from typing import get_args

import msgspec
import pytest
import trio

from parties.events import Warned
from parties.outcome import Aborted
from parties.schedule import Schedule
from parties.server.round.reading import StoredSubmission
from parties.server.round.run import PARTS_APART
from parties.server.store_layout import RequestKey, part_name
from parties.simulation.network import SERVERS
from parties.testing import AtTime, AtWrite, Crash, Fault, SlowDisk, SpoiltBlobs
from parties.testing.faults import Moment
from parties.testing.world import World, world
from tests.parties.testing.small_world import MODEL, TASK, exact, listening, take_part
from tests.parties.testing.small_world import THREE as NAMES
from tests.support.cases import sides

LATE = 70.0
"""When the last client comes, where the round is to stay open for a while."""


a_world = partial(listening, TASK, MODEL, NAMES)


async def settled(made: World, late: float = 0.0) -> None:
    """All clients take part, the last one late; both servers have settled, and erased what is to be forgotten."""
    for name in NAMES[:-1]:
        made.start(name, take_part)
    await trio.sleep(late)
    made.start(NAMES[-1], take_part)
    with trio.fail_after(2000):
        await made.wait_settled(1)
    await trio.sleep(5)


def warnings(made: World) -> list[str]:
    return [told.explanation for _, _, told in made.events if isinstance(told, Warned) and told.about == "blobs"]


def restarted_among_harmed(harm: str, until: float) -> list[Fault]:
    """Both servers read back what they had taken before they were killed, and their disks give something else."""
    return [
        *(Crash(server, AtTime(20.0), down=2.0) for server in SERVERS),
        *(SpoiltBlobs(server, 20.0, until - 20.0, harm) for server in SERVERS),
    ]


@pytest.mark.parametrize(("harm", "said"), [("altered", "has other content than was put"), ("missing", "is missing")])
async def test_blobs_that_are_harmed_for_a_while_are_named_and_waited_for(autojump_clock, harm, said):
    async with a_world(*restarted_among_harmed(harm, 60.0)) as made:
        await settled(made, LATE)
        exact(made)
        assert any(line.startswith("the blob round-00000001/parts/client") and said in line for line in warnings(made))
        assert not made.ended


async def test_a_round_whose_blobs_are_gone_waits_and_can_be_aborted(autojump_clock):
    async with a_world(*restarted_among_harmed("missing", 119.0)) as made:
        for name in NAMES[:-1]:
            made.start(name, take_part)
        await trio.sleep(80)
        assert warnings(made)
        await made.servers[0].abort_round(1, "its blobs are gone")
        with trio.fail_after(30):
            await made.wait_settled(1)
        assert isinstance(made.settled[1][1].ending, Aborted)
        assert not made.ended


POINTS = [
    *(AtWrite("/parts/", 1, moment) for moment in get_args(Moment)[:3]),
    *(AtWrite("erase/round", 1, moment) for moment in get_args(Moment)[:3]),
    *(AtWrite("/share/", number, moment) for number in (1, 3) for moment in get_args(Moment)[:3]),
]


@pytest.mark.parametrize(("point", "server"), sides(POINTS, SERVERS))
async def test_a_crash_around_a_blob_loses_nothing_and_leaves_nothing(autojump_clock, point, server):
    crash = Crash(server, point, down=2.0)
    async with a_world(crash) as made:
        await settled(made)
        exact(made)
        assert crash in made.injector.fired
        assert not any(made.blob_disks[name].blobs for name in SERVERS)


async def test_bulk_of_which_the_store_knows_nothing_is_swept_at_the_start(autojump_clock):
    """As there is where a server begins anew with an empty store, and its blobs are where they were."""
    crashes = [Crash(server, AtTime(0.001), down=5.0) for server in SERVERS]
    schedule = Schedule(clients=len(NAMES), seconds=300.0, rounds=1)
    async with world(TASK, MODEL, 4, crashes, schedule, clients=NAMES) as made:
        await trio.sleep(1.0)
        for name in SERVERS:
            for stale in ("round-00000001/parts/client%200/submit-0/aa", "round-00000007/share/aa", "other"):
                made.blob_disks[name].blobs[stale] = memoryview(b"stale")
        await trio.sleep(6.0)
        assert all(set(made.blob_disks[name].blobs) == {"other"} for name in SERVERS)
        await settled(made)
        exact(made)


async def test_a_slow_disk_under_blobs_delays_and_changes_nothing(autojump_clock):
    async with a_world(*(SlowDisk(server, 0.0, 100.0, 2.0) for server in SERVERS)) as made:
        await settled(made)
        exact(made)


async def test_no_seed_is_in_a_blob(autojump_clock):
    async with a_world(schedule={"retention": 1}) as made:
        await settled(made)
        exact(made)
        blobs = [bytes(content) for name in SERVERS for content in made.blob_disks[name].blobs.values()]
        assert len(blobs) >= len(NAMES)
        for server in made.servers:
            store = server.setup.store
            for key in await store.keys("round-00000001/submissions/"):
                stored = msgspec.msgpack.decode(bytes(await store.blob(key)), type=StoredSubmission)
                assert not any(stored.msk in content for content in blobs)


async def test_parts_that_nobody_has_noted_and_that_contradict_each_other_count_for_nothing(autojump_clock):
    """Blobs are not only this process's: whatever lies there, the server starts, and the client's own part counts."""
    async with a_world(Crash("S0", AtTime(20.0), down=2.0)) as made:
        config = (await made.servers[0].next_round(0)).config
        name = next(each for each in NAMES if config.carrier(each) == 1)
        for part in (b"a" * 32, b"b" * 32):
            place = part_name("round-00000001", RequestKey(name, "submit", 0), part)
            made.blob_disks["S0"].blobs[place] = memoryview(b"anything")
        await trio.sleep(30)
        assert sum(PARTS_APART in line for line in warnings(made)) == 2
        await settled(made)
        exact(made)
