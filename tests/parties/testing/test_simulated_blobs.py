"""Simulated blobs: what a crash leaves of them, and which faults they have."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest
import trio

from fsl_async.errors import StorageError
from parties.storage.store import DiskFullError
from parties.testing import AtCommit, AtWrite, BlobDisk, BrokenWrite, Crash, FullDisk, SimulatedBlobs, SlowDisk
from parties.testing.faults import FaultBase, SpoiltBlobs
from parties.testing.injector import Injector
from parties.testing.processes import KilledError, Process


class Server:
    """A process with blobs, over its lives."""

    def __init__(self, *faults: FaultBase, seed: int = 0) -> None:
        self.disk = BlobDisk()
        self.process = Process("S0", Random(seed))
        self.injector = Injector(seed, faults)
        self.injector.begin()
        self.injector.kill = lambda crash: self.process.kill(crash.down)
        self.seed = seed

    def start(self) -> SimulatedBlobs:
        life = self.process.begin()
        life.ending.append(lambda: self.disk.crash("S0", Random(self.seed)))
        self.disk.open()
        return SimulatedBlobs(self.disk, life, self.injector)


async def killed(work: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(KilledError):
        await work()


async def test_what_was_put_durably_survives_a_crash(autojump_clock):
    server = Server()
    blobs = server.start()
    await blobs.put("round-1/a", b"1")
    await blobs.put("round-1/b", b"2", durable=False)
    server.process.kill(1.0)
    await killed(lambda: blobs.read("round-1/a"))
    await killed(lambda: blobs.put("round-1/c", b"3"))
    blobs = server.start()
    assert await blobs.names("") == ["round-1/a"]


@pytest.mark.parametrize(("moment", "left"), [("before write", {0}), ("before sync", {0, 1}), ("after write", {1})])
async def test_a_put_that_a_crash_interrupts_has_happened_whole_or_not_at_all(autojump_clock, moment, left):
    found = set()
    for seed in range(12):
        server = Server(Crash("S0", AtWrite("/a", 1, moment), 1.0), seed=seed)
        blobs = server.start()
        await killed(lambda blobs=blobs: blobs.put("round-1/a", b"whole"))
        blobs = server.start()
        names = await blobs.names("")
        found.add(len(names))
        for name in names:
            assert await blobs.read(name) == b"whole"
    assert found == left


@pytest.mark.parametrize(
    ("moment", "left"), [("before write", {3}), ("before sync", {0, 1, 2, 3}), ("after write", {0})]
)
async def test_an_erasure_that_a_crash_interrupts_has_erased_some(autojump_clock, moment, left):
    found = set()
    for seed in range(40):
        server = Server(Crash("S0", AtWrite("erase/round-1", 1, moment), 1.0), seed=seed)
        blobs = server.start()
        for name in ("round-1/a", "round-1/b", "round-1/c", "round-2/a"):
            await blobs.put(name, b"1")
        await killed(lambda blobs=blobs: blobs.erase("round-1/"))
        blobs = server.start()
        found.add(len(await blobs.names("round-1/")))
        assert await blobs.names("round-2/") == ["round-2/a"]
    assert found == left


async def test_puts_count_as_commits(autojump_clock):
    server = Server(Crash("S0", AtCommit(2, "after write"), 1.0))
    blobs = server.start()
    await blobs.put("a", b"1")
    await killed(lambda: blobs.put("b", b"1"))
    assert server.process.commits == 2


async def test_a_disk_that_is_slow_full_or_broken(autojump_clock):
    blobs = Server(SlowDisk("S0", 0.0, 5.0, 3.0)).start()
    began = trio.current_time()
    await blobs.put("a", b"1")
    assert 3.0 <= trio.current_time() - began < 3.1
    blobs = Server(FullDisk("S0", 0.0, 5.0), BrokenWrite("S0", 2)).start()
    with pytest.raises(DiskFullError):
        await blobs.put("a", b"1")
    await trio.sleep(6)
    with pytest.raises(StorageError, match="input/output error"):
        await blobs.put("a", b"1")
    assert await blobs.names("") == []


async def test_blobs_are_altered_or_missing_for_a_while(autojump_clock):
    blobs = Server(SpoiltBlobs("S0", 1.0, 5.0, "altered"), SpoiltBlobs("S0", 10.0, 5.0, "missing")).start()
    await blobs.put("a", b"12345678")
    assert await blobs.read("a") == b"12345678"
    await trio.sleep(2)
    found = bytes(await blobs.read("a"))
    assert len(found) == 8
    assert found != b"12345678"
    await trio.sleep(10)
    with pytest.raises(StorageError, match="the blob a is missing"):
        await blobs.read("a")
    assert await blobs.size("a") is None
    await trio.sleep(10)
    assert await blobs.read("a") == b"12345678"
