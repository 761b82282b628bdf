"""A full disk puts clients off and holds the server up, and loses nothing; a lost store ends the server."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

import msgspec
import pytest
import trio

from fsl_async.bin_count import planned
from fsl_async.errors import ChannelError, StorageError, leaves
from fsl_async.protocols.machine import Event
from fsl_async.protocols.ssa import GraceOver, Submitted
from fsl_async.wire.public_part import Layout, Trees, dense_bytes
from parties import RequestDeniedError
from parties.events import RequestRefused, ServerEvent, Warned
from parties.identity.registry import Registry
from parties.server.admission import Anyone
from parties.server.replies import RequestRefusedError
from parties.server.round.places import LIMITS, Counted
from parties.server.round.records import round_bytes
from parties.server.storage import PAUSE
from parties.storage.sqlite_store import SqliteStore, StoreLostError
from parties.storage.store import Change, DiskFullError, MemoryStore, Put, Record
from tests.support.cases import sides
from tests.support.shop import TASK, Basket, Shop, all_take_part, assert_exact, opened, take_part
from transport import BusyError

PATIENCE = 20.0
"""Seconds that S0 waits for S1, which waits for it without end."""

Test = Callable[[Change], bool]


class Disk(MemoryStore):
    """A store that refuses what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.refuses: Test = nothing
        self.error: StorageError = DiskFullError("the disk is full")
        self.refused = 0
        self.room = float("inf")

    async def commit(self, *changes: Change) -> None:
        if any(map(self.refuses, changes)):
            self.refused += 1
            raise self.error
        await super().commit(*changes)

    async def record(self, journal: str, entry: bytes) -> None:
        await self.commit(Record(journal, entry))

    async def check_room(self, needed: int) -> None:
        if needed > self.room:
            raise StorageError(f"{needed} bytes are needed")


def nothing(change: Change) -> bool:
    return False


def everything(change: Change) -> bool:
    return True


def submissions(change: Change) -> bool:
    return isinstance(change, Put) and "/submissions/" in change.key


def requests(change: Change) -> bool:
    return isinstance(change, Record) and change.journal.endswith("/requests")


@dataclass
class Full(Shop):
    """A shop in memory whose disks can be full."""

    disks: tuple[Disk, Disk] = field(default_factory=lambda: (Disk(), Disk()))
    happenings: list[ServerEvent] = field(default_factory=list)

    def setup_of(self, index):
        setup = super().setup_of(index)
        return replace(
            setup,
            store=self.disks[index],
            observe=self.happenings.append,
            clock=trio.current_time,
            schedule=msgspec.structs.replace(setup.schedule, patience=inf if index else PATIENCE),
        )

    def told(self, kind: type[ServerEvent]) -> list[ServerEvent]:
        return [happening for happening in self.happenings if isinstance(happening, kind)]


@pytest.fixture
async def shop(nursery) -> Full:
    shop = Full.in_memory(nursery)
    await shop.open()
    return shop


@pytest.mark.parametrize("refuses", [submissions, requests])
@pytest.mark.parametrize("index", [0, 1])
async def test_a_submission_that_finds_no_room_is_put_off_and_counts_once_there_is_some(
    shop, autojump_clock, index, refuses
):
    disk = shop.disks[index]
    tries = LIMITS[Counted.ATTEMPT] + 3
    async with opened(*(shop.client(name, patience=float("inf")) for name in ("anna", "ben", "carl"))) as clients:
        anna, *others = clients
        await all_take_part(*others)
        await anna.retrieve({"items": Basket("anna").rows})
        disk.refuses = refuses
        receipts = []
        async with trio.open_nursery() as nursery:

            async def submit() -> None:
                receipts.append(await anna.submit(Basket("anna").update))

            nursery.start_soon(submit)
            while disk.refused < tries:  # noqa: ASYNC110 - virtual time
                await trio.sleep(1)
            assert receipts == []
            disk.refuses = nothing
        assert {refused.reason for refused in shop.told(RequestRefused)} == {"busy"}
        assert {warned.about for warned in shop.told(Warned)} == {"store"}
        assert_exact(await shop.finish_round(), "anna", "ben", "carl")
    assert shop.failures == []


async def test_who_sends_again_what_another_connection_of_its_own_could_not_store_is_put_off_too(shop, autojump_clock):
    """Both hold one claim; when it is given back, neither waits for a submission that is not there."""
    run = await shop.servers[0].next_round(0)
    assert run.aggregation.places.claim("anna", bytes(32))
    assert not run.aggregation.places.claim("anna", bytes(32))
    ended = []
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(RequestRefusedError, match="send it again"):
                await run.aggregation.places.wait_entered("anna")
            ended.append(True)

        nursery.start_soon(wait)
        await trio.sleep(1)
        run.aggregation.places.give_back("anna")
    assert ended == [True]
    assert run.aggregation.places.claim("anna", bytes(32))


JOURNALS = ("events", "toss", "share/", "parts/", "past/", "opened", "standing")


@pytest.mark.parametrize(("name", "index"), sides(JOURNALS))
async def test_what_the_server_records_itself_waits_for_room_and_nothing_is_lost(shop, autojump_clock, index, name):
    """Two rounds, exact, though everything of one kind finds no room the first three times."""
    disk, left = shop.disks[index], [3]

    def refuses(change: Change) -> bool:
        named = change.journal if isinstance(change, Record) else getattr(change, "key", "")
        if name not in named or not left[0]:
            return False
        left[0] -= 1
        return True

    disk.refuses = refuses
    async with opened(*(shop.client(name, patience=float("inf")) for name in ("anna", "ben"))) as clients:
        for _ in range(2):
            async with trio.open_nursery() as nursery:
                for client in clients:
                    nursery.start_soon(take_part, client)
            with trio.fail_after(600):
                assert_exact(await shop.finish_round(), "anna", "ben")
    assert left == [0]
    assert shop.failures == []
    assert 1 <= len(shop.told(Warned)) <= 3
    if name != "parts/":  # which of them clients bring to this server is a matter of chance
        assert all("the server waits" in warned.explanation for warned in shop.told(Warned))


async def test_while_its_own_disk_is_full_a_server_waits_for_nobody_else(shop, autojump_clock):
    """It says so, no such second is one of waiting for the other server, and the round is not given up for it."""
    disk, server = shop.disks[0], shop.servers[0]
    async with opened(*(shop.client(name, patience=float("inf")) for name in ("anna", "ben"))) as clients:
        await all_take_part(*clients)
        run = await server.next_round(0)
        disk.refuses = lambda change: isinstance(change, Record) and "/events" in change.journal and not run.is_open
        async with trio.open_nursery() as nursery:

            async def see_it_through() -> None:
                assert_exact(await shop.finish_round(), "anna", "ben")

            nursery.start_soon(see_it_through)
            await trio.sleep(5 * PATIENCE)
            status = server.status()
            assert status.round.state == "Closed"
            assert status.round.waiting_for == "this server's own store, out of room or of reach"
            assert status.held_up_since is not None
            assert status.waiting_for == "round 1: Closed; held up by this server's own store, out of room or of reach"
            disk.refuses = nothing
        (past,) = await server.past_rounds()
        assert past.times.waiting < 2 * PAUSE < 4 * PATIENCE < past.times.interrupted
        assert "held up" not in server.status().waiting_for


async def test_a_server_whose_disk_is_full_can_be_stopped_with_much_on_its_way(autojump_clock):
    """Whoever has something to report, shielded, does not wait for an actor that has ended; submissions never wait."""
    with trio.fail_after(600):
        async with trio.open_nursery() as entering, trio.open_nursery() as serving:
            shop = Full.in_memory(serving)
            await shop.open()
            shop.disks[0].refuses = lambda change: isinstance(change, Record) and change.journal.endswith("/events")
            run = await shop.servers[0].next_round(0)

            async def report(event: Event) -> None:
                with trio.CancelScope(shield=True):
                    await shop.servers[0].inbox.post(run.round_id, event)

            for number in range(100):
                entering.start_soon(report, Submitted(f"c{number}", bytes(32)))
            await trio.sleep(60)
            assert not entering.child_tasks
            for _ in range(100):
                entering.start_soon(report, GraceOver())
            await trio.sleep(60)
            assert len(entering.child_tasks) > 30
            serving.cancel_scope.cancel()


async def test_who_cannot_be_enrolled_for_want_of_room_may_come_back(nursery, autojump_clock):
    shop = Full.in_memory(nursery)
    base = shop.setup_of
    shop.setup_of = lambda index: replace(base(index), policy=Anyone(), registry=Registry())
    await shop.open()
    for disk in shop.disks:
        disk.refuses = lambda change: isinstance(change, Record) and change.journal == "enrolment"
    with pytest.raises(BusyError, match="its disk is full"):
        async with shop.client("dora", patience=0):
            pass
    for disk in shop.disks:
        disk.refuses = nothing
    async with shop.client("dora"):
        pass
    assert shop.failures == []


@pytest.mark.parametrize(("missing", "warnings"), [(0, 0), (1, 2)])
async def test_a_round_that_opens_without_room_for_all_of_it_is_told(nursery, autojump_clock, missing, warnings):
    """Room for everybody's submission, and for the last one twice: it lies in the log and in the file for a while."""
    submission = Layout.submission(planned(TASK), Trees.OWN).size + dense_bytes(TASK)
    one = TASK.retrievals * Layout.retrieval(planned(TASK)).size + submission
    needed = TASK.max_clients * one + 2 * (Layout.retrieval(planned(TASK)).size + submission)
    assert round_bytes(TASK, TASK.max_clients) == needed
    shop = Full.in_memory(nursery)
    for disk in shop.disks:
        disk.room = needed - missing
    await shop.open()
    for server in shop.servers:
        await server.next_round(0)
    words = [warned.explanation for warned in shop.told(Warned)]
    assert len(words) == warnings
    assert all(word.startswith(f"round 1 opens without room for {TASK.max_clients} submissions") for word in words)


# ---- a lost store


@pytest.mark.parametrize(
    "refuses",
    [everything, submissions, requests, lambda change: isinstance(change, Record) and "/events" in change.journal],
)
@pytest.mark.parametrize("index", [0, 1])
async def test_a_lost_store_ends_the_server_whoever_meets_it_first(shop, autojump_clock, index, refuses):
    shop.disks[index].error = StoreLostError("store.db: the disk failed; start again")
    async with opened(shop.client("anna", patience=0.0)) as (anna,):
        shop.disks[index].refuses = refuses
        with trio.move_on_after(60):
            with pytest.raises((ChannelError, RequestDeniedError)):
                await take_part(anna)
        with trio.fail_after(60):
            await shop.failed.wait()
    (lost,) = leaves(shop.failures[0])
    assert isinstance(lost, StoreLostError)
    assert str(lost) == "store.db: the disk failed; start again"


@pytest.mark.parametrize("which", ["store.db", "store.db-wal"])
@pytest.mark.parametrize("fate", ["removed", "replaced"])
async def test_a_file_that_is_not_there_any_more_is_a_lost_store(tmp_path, which, fate):
    """SQLite would write on to a file that nobody finds again."""
    store = await SqliteStore.open(tmp_path / "store.db")
    await store.record("log", b"1")
    file = tmp_path / which
    content = file.read_bytes()
    os.unlink(file)
    if fate == "replaced":
        file.write_bytes(content)
    for _ in range(2):
        with pytest.raises(StoreLostError, match=rf"{which} was removed or replaced"):
            await store.record("log", b"2")
    await store.aclose()
