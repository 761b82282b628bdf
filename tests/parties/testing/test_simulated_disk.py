"""The simulated disk and the store on it: what was acknowledged is there, and nothing is there in part."""

from contextlib import suppress
from random import Random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fsl_async.errors import MisuseError, StorageError
from parties.storage.store import Change, DiskFullError, Erase, Keep, MemoryStore, Put, Record, Store
from parties.testing import Disk, DiskFaults, DiskStore
from parties.testing.processes import KilledError, Life, Process

WRITES = st.lists(st.tuples(st.binary(max_size=12), st.booleans()), max_size=8)
NAMES = ["a", "a/1", "a/2", "b", "ü"]
MOMENTS = ["before write", "before sync", "after sync"]


# ---- the disk


@given(writes=WRITES, seed=st.integers(0, 2**32))
def test_a_crash_keeps_what_is_synced_and_a_beginning_of_the_rest(writes: list[tuple[bytes, bool]], seed: int) -> None:
    disk, synced = Disk(), b""
    for data, sync in writes:
        disk.write(data)
        if sync:
            disk.sync()
            synced = bytes(disk.data)
    before = bytes(disk.data)
    disk.crash(Random(seed))
    assert bytes(disk.data).startswith(synced)
    assert len(disk.data) <= len(before)
    assert all(left in (0, written) for left, written in zip(disk.data, before, strict=False)), "a hole has zeros"
    after = bytes(disk.data)
    disk.crash(Random(seed + 1))
    assert disk.data == after, "what a crash has left is on the disk for good"


def test_every_torn_length_comes_about() -> None:
    left = set()
    for seed in range(400):
        disk = Disk(b"kept")
        disk.write(b"torn")
        disk.crash(Random(seed))
        left.add(bytes(disk.data))
    assert left >= {b"kept", b"keptt", b"keptto", b"kepttor", b"kepttorn", b"kept\0orn", b"keptt\0\0n"}


def test_an_earlier_copy_is_all_synced() -> None:
    disk = Disk(b"old")
    copy = bytes(disk.data)
    disk.write(b"new")
    disk.restore(copy)
    disk.crash(Random(1))
    assert disk.data == b"old"


# ---- the store


class At(DiskFaults):
    """Kills the process, or fails, at one moment of every commit; does nothing at a moment that there is not."""

    def __init__(self, moment: str, error: type[StorageError] | None = None) -> None:
        self.moment = moment
        self.error = error

    async def before_write(self, life: Life, changes: tuple[Change, ...]) -> None:
        self._strike(life, "before write")

    async def before_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        self._strike(life, "before sync")

    async def after_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        self._strike(life, "after sync")

    def _strike(self, life: Life, moment: str) -> None:
        if moment == self.moment:
            if self.error is not None:
                raise self.error("the simulated disk")
            life.process.kill(1.0)
            life.require_alive()


def begun(process: Process, disk: Disk) -> Life:
    life = process.begin()
    life.ending.append(lambda: disk.crash(process.rng))
    return life


async def content(store: Store) -> tuple[dict[str, bytes], dict[str, list[bytes]]]:
    blobs = {key: bytes(await store.blob(key)) for key in await store.keys("")}
    return blobs, {name: await store.entries(name) for name in NAMES}


CHANGES = st.one_of(
    st.builds(Record, st.sampled_from(NAMES), st.binary(max_size=3)),
    st.builds(Keep, st.sampled_from(NAMES), st.sampled_from([b"", b"x", b"yy"])),
    st.builds(Put, st.sampled_from(NAMES), st.sampled_from([b"", b"x", b"zz"])),
    st.builds(Erase, st.sampled_from(["a", "a/", "b"])),
)
COMMITS = st.lists(CHANGES, min_size=1, max_size=4)


class StoreOnDisk(RuleBasedStateMachine):
    """A store on a disk beside one in memory, with crashes at every moment of a commit."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.process, self.disk = Process("S0", Random(seed)), Disk()
        self.acknowledged: list[list[Change]] = []
        self.start_again()

    @rule(changes=COMMITS)
    def commit(self, changes: list[Change]) -> None:
        expected = self.expected(changes)
        made = trio.run(tried, self.store, changes)
        assert made == (expected is not None)
        if made:
            self.acknowledged.append(changes)

    @rule(changes=COMMITS, moment=st.sampled_from(MOMENTS))
    def crash_in_a_commit(self, changes: list[Change], moment: str) -> None:
        before, after = self.expected([]), self.expected(changes)
        self.faults.moment = moment
        killed = trio.run(dies, self.store, changes)
        assert killed == (after is not None), "a commit that is refused gets to no crash"
        self.start_again()
        found = trio.run(content, self.store)
        allowed = {"before write": [before], "before sync": [before, after], "after sync": [after]}
        assert found in (allowed[moment] if killed else [before])
        if found == after and killed:
            self.acknowledged.append(changes)

    @rule(changes=COMMITS)
    def find_the_disk_full(self, changes: list[Change]) -> None:
        self.faults.moment, self.faults.error = "before write", DiskFullError
        assert not trio.run(tried, self.store, changes)
        self.faults.moment, self.faults.error = "never", None

    @rule()
    def crash_between_commits(self) -> None:
        self.process.kill(1.0)
        self.start_again()

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        if hasattr(self, "store"):
            assert trio.run(content, self.store) == self.expected([])

    def start_again(self) -> None:
        self.faults = At("never")

        async def read() -> DiskStore:
            return await DiskStore(self.disk, begun(self.process, self.disk), self.faults).read()

        self.store = trio.run(read)

    def expected(self, changes: list[Change]) -> tuple[dict[str, bytes], dict[str, list[bytes]]] | None:
        """What a store holds after all commits, and these changes; nothing, where it refuses these."""

        async def replayed() -> tuple[dict[str, bytes], dict[str, list[bytes]]] | None:
            store = MemoryStore()
            for commit in self.acknowledged:
                await store.commit(*commit)
            return await content(store) if await tried(store, changes) else None

        return trio.run(replayed)


async def tried(store: Store, changes: list[Change]) -> bool:
    """Whether a store takes a commit."""
    with suppress(StorageError):
        await store.commit(*changes)
        return True
    return False


async def dies(store: Store, changes: list[Change]) -> bool:
    """Whether its process is killed in a commit."""
    with suppress(StorageError):
        try:
            await store.commit(*changes)
        except KilledError:
            return True
    return False


TestStoreOnDisk = StoreOnDisk.TestCase
TestStoreOnDisk.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)


NO_FAULTS = At("never")


async def a_store(faults: DiskFaults = NO_FAULTS) -> tuple[Disk, Life, DiskStore]:
    disk = Disk()
    life = begun(Process("S0", Random(3)), disk)
    return disk, life, await DiskStore(disk, life, faults).read()


async def read_again(disk: Disk, life: Life) -> DiskStore:
    return await DiskStore(disk, begun(life.process, disk), NO_FAULTS).read()


async def test_a_dead_process_neither_reads_nor_writes() -> None:
    disk, life, store = await a_store()
    await store.commit(Put("a", b"1"))
    written = bytes(disk.data)
    life.process.kill(1.0)
    for call in (store.commit(Put("a", b"2")), store.blob("a"), store.entries("a"), store.keys("")):
        with pytest.raises(KilledError):
            await call
    assert disk.data == written


async def test_a_commit_that_sleeps_when_its_process_is_killed_writes_nothing(autojump_clock: trio.abc.Clock) -> None:
    class Slow(At):
        async def before_write(self, life: Life, changes: tuple[Change, ...]) -> None:
            await trio.sleep(5)

    disk, life, store = await a_store(Slow("never"))
    async with trio.open_nursery() as nursery:

        async def commit() -> None:
            with pytest.raises(KilledError):
                await store.commit(Put("a", b"1"))

        nursery.start_soon(commit)
        await trio.sleep(1)
        life.process.kill(1.0)
    assert disk.data == b""


async def test_names_that_are_not_text_are_the_callers_mistake() -> None:
    _, _, store = await a_store()
    for change in (Record("\ud800", b""), Keep("\ud800", b""), Put("\ud800", b""), Erase("\ud800")):
        with pytest.raises(MisuseError, match="not text"):
            await store.commit(Record("a", b""), change)
    await store.commit(Keep("a", memoryview(b"abcdef")[2:4]))
    assert await content(store) == ({"a": b"cd"}, {name: [] for name in NAMES})
