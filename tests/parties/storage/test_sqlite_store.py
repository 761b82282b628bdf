"""The store in a file: it outlives its process, batches its commits, and refuses what it cannot keep."""

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing, closing, contextmanager
from functools import partial
from itertools import takewhile
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace

import pytest
import trio

from fsl_async.errors import StorageError
from parties.files import disk
from parties.files.disk import InUseError, check_room, file_system, room
from parties.storage import sqlite_connections as sqlite_ends
from parties.storage import sqlite_file, sqlite_store
from parties.storage.sqlite_connections import CHUNK_BYTES, Commit, ReadConnection, WriteConnection
from parties.storage.sqlite_store import DiskFullError, SqliteStore, StoreLostError, snapshot
from parties.storage.store import Change, Erase, Keep, Put, Record

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["parties.storage.sqlite_store"])
WAITS = 20  # seconds for what takes milliseconds; a hang, not slowness, is what this is to end


def started(work: Callable[..., None], *arguments: object) -> tuple[BaseProcess, Connection]:
    """A process that works with these and a connection on which it reports; and our end of that."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=work, args=(*arguments, theirs))
    process.start()
    theirs.close()
    return process, ours


def dies(work: Callable[..., None], *arguments: object) -> None:
    """A process that works with these kills itself."""
    process = PROCESSES.Process(target=work, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def opened(path: Path) -> SqliteStore:
    """A store that is used and closed in this process, but not in this run of trio."""
    return trio.run(SqliteStore.open, path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


# What it keeps


async def test_everything_is_there_again(path):
    large = random.Random(1).randbytes(2 * CHUNK_BYTES + 1)
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(Record("log", b"1"), Keep("large", large), Put("v", b"1"), Keep("gone", b"g"))
        await store.commit(Record("log", b"2"), Put("v", b"2"), Erase("gone"))
    assert sorted(os.listdir(path.parent)) == ["store.db", "store.db.lock"]
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(Record("log", b"3"), Keep("large", large))
        assert await store.entries("log") == [b"1", b"2", b"3"]
        assert await store.keys("") == ["large", "v"]
        assert await store.blob("large") == large
        assert await store.blob("v") == b"2"


async def test_many_commits_share_a_transaction(path):
    async def work(task: int) -> None:
        for step in range(10):
            await store.record(f"task/{task}", b"%d" % step)

    async with aclosing(await SqliteStore.open(path)) as store:
        async with trio.open_nursery() as nursery:
            for task in range(50):
                nursery.start_soon(work, task)
        assert 10 <= store.transactions < 250


async def test_a_commit_that_waits_for_the_disk_is_finished_before_its_task_is_cancelled(path):
    async with aclosing(await SqliteStore.open(path)) as store:
        returned = []
        for number in range(10):
            with trio.CancelScope() as scope:
                trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
                await store.record("log", b"%d" % number)
                returned.append(b"%d" % number)
                await trio.lowlevel.checkpoint()
            assert scope.cancelled_caught
        assert await store.entries("log") == returned
        assert len(returned) == 10


async def test_after_it_is_closed_everything_is_refused(path):
    store = await SqliteStore.open(path)
    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(store.record, "log", b"%d" % number)
        await trio.testing.wait_all_tasks_blocked(0)
        nursery.start_soon(store.aclose)
    for query in (store.keys, store.entries, store.blob, lambda name: store.record(name, b"")):
        with pytest.raises(StorageError, match=r"store\.db is closed"):
            await query("log")
    with pytest.raises(StorageError, match="is closed"):
        await store.snapshot(path.with_name("copy.db"))
    async with aclosing(await SqliteStore.open(path)) as again:
        assert len(await again.entries("log")) == 20


# What a killed process leaves


def piece(*words: object) -> bytes:
    """Content that its name determines; some of it in two chunks."""
    source = random.Random(repr(words))
    size = CHUNK_BYTES + 1 if source.random() < 0.02 else source.randrange(20_000)
    return source.randbytes(8) * (size // 8 + 1)


def keep_committing(path: Path, begins: dict[int, int], reports: Connection) -> None:
    """Commit for ever, from several tasks; report every commit that is acknowledged."""

    async def work(store: SqliteStore, task: int, step: int) -> None:
        while True:
            await store.commit(
                Record(f"log/{task}", b"%d" % step),
                Keep(f"{task}/{step}/a", piece(task, step, "a")),
                Erase(f"{task}/{step - 5}/"),
                Keep(f"{task}/{step}/b", piece(task, step, "b")),
                Put(f"last/{task}", b"%d" % step),
            )
            reports.send((task, step))
            step += 1

    async def main() -> None:
        store = await SqliteStore.open(path)
        async with trio.open_nursery() as nursery:
            for task, step in begins.items():
                nursery.start_soon(work, store, task, step)

    trio.run(main)


def killed(path: Path, begins: dict[int, int], after: int) -> list[tuple[int, int]]:
    """What a process acknowledged that was killed after some acknowledgements."""
    process, ours = started(keep_committing, path, begins)
    reports = [ours.recv() for _ in range(after)]
    process.kill()
    process.join()
    return [*reports, *remaining(ours)]


def remaining(reports: Connection) -> Iterator[tuple[int, int]]:
    """What was sent before the sender ended."""
    while True:
        try:
            yield reports.recv()
        except EOFError:
            return


async def check_task(store: SqliteStore, task: int, acknowledged: int) -> int:
    """That a task's commits are there in full, none is there by half, and none is missing; how many there are."""
    entries = await store.entries(f"log/{task}")
    count = len(entries)
    assert entries == [b"%d" % step for step in range(count)]
    assert acknowledged <= count <= acknowledged + 1
    kept = range(max(count - 5, 0), count)
    assert await store.keys(f"{task}/") == sorted(f"{task}/{step}/{half}" for step in kept for half in "ab")
    for step in kept:
        for half in "ab":
            assert await store.blob(f"{task}/{step}/{half}") == piece(task, step, half)
    assert await store.keys(f"last/{task}") == ([f"last/{task}"] if count else [])
    assert not count or await store.blob(f"last/{task}") == b"%d" % (count - 1)
    return count


@pytest.mark.parametrize("kills", [7, pytest.param(21, marks=pytest.mark.slow)])
async def test_a_killed_process_loses_nothing_it_acknowledged(path, kills):
    source, begins = random.Random(6), dict.fromkeys(range(5), 0)
    for kill in range(kills):
        reports = killed(path, begins, source.choice([0, 1, 2, source.randrange(60)]))
        acknowledged = {
            task: max([step + 1 for at, step in reports if at == task], default=begins[task]) for task in begins
        }
        async with aclosing(await SqliteStore.open(path)) as store:
            begins = {task: await check_task(store, task, count) for task, count in acknowledged.items()}
        print(f"kill {kill}: {len(reports)} acknowledged, {sum(begins.values())} in all")
    assert sum(begins.values()) > 4 * kills


def die_at_chunk(path: Path, number: int) -> None:
    """Begin to keep a large blob, and be killed before one of its chunks is written."""
    chunks = iter(range(number))

    def count(statement: str) -> None:
        if statement.startswith("INSERT INTO chunk") and next(chunks, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    def traced(path: Path) -> sqlite3.Connection:
        connection = sqlite_file.connect(path)
        connection.set_trace_callback(count)
        return connection

    async def main() -> None:
        sqlite_ends.connect = traced
        store = await SqliteStore.open(path)
        await store.commit(Record("log", b""), Keep("large", bytes(8 * CHUNK_BYTES)))

    trio.run(main)


@pytest.mark.parametrize("number", [0, 1, 5, 7])
async def test_nothing_stays_of_a_blob_that_was_killed_half_way(path, number):
    dies(die_at_chunk, path, number)
    async with aclosing(await SqliteStore.open(path)) as store:
        assert await store.keys("") == await store.entries("log") == []
        await store.commit(Keep("large", b"whole"))
    assert path.stat().st_size < CHUNK_BYTES


def logged(path: Path, count: int) -> list[int]:
    """Make commits, and copy the files as they are then; how long the log was after each."""
    end, lengths = WriteConnection(path), []
    end.tidy()
    for number in range(count):
        end.transact([Commit.of([Record("log", b"%d" % number), Keep(f"k/{number}", piece("torn", number))])])
        lengths.append(path.with_name(f"{path.name}-wal").stat().st_size)
    for name in (path.name, f"{path.name}-wal"):
        shutil.copy(path.with_name(name), path.with_name(f"torn-{name}"))
    end.close()
    return lengths


@pytest.mark.parametrize("seed", range(6))
async def test_a_log_that_lost_its_end_with_the_power_holds_all_commits_before_it(path, seed):
    """What follows the last sync may be missing, or be anything."""
    source = random.Random(seed)
    lengths = logged(path, 12)
    assert lengths == sorted(set(lengths))
    last = source.randrange(11)
    cut = source.randrange(lengths[last], lengths[last + 1])
    log = path.with_name("torn-store.db-wal")
    whole = log.read_bytes()
    tails = [b"", bytes(5000), source.randbytes(5000), source.randbytes(40) + whole[cut:]]
    log.write_bytes(whole[:cut] + source.choice(tails))
    async with aclosing(await SqliteStore.open(path.with_name("torn-store.db"))) as store:
        assert await store.entries("log") == [b"%d" % number for number in range(last + 1)], f"seed {seed}"
        for number in range(last + 1):
            assert await store.blob(f"k/{number}") == piece("torn", number), f"seed {seed}"
        await store.record("log", b"goes on")


# Full and failing disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The folder of a disk of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def fill(store: SqliteStore, size: int) -> int:
    """Keep blobs until the disk is full; how many there are."""
    for number in range(1000):
        try:
            await store.commit(Record("log", b"%d" % number), Keep(f"fill/{number:04}", bytes(size)))
        except DiskFullError:
            return number
    raise AssertionError("the disk is not full")


async def check_full(store: SqliteStore) -> None:
    """That a full disk refuses what does not fit and nothing else, and that erasing makes room."""
    count = await fill(store, 300_000)
    assert count > 5
    outcomes = dict.fromkeys(["large", "kept", "small"], "made")

    async def tried(name: str, *changes: Change) -> None:
        try:
            await store.commit(*changes)
        except StorageError as error:
            outcomes[name] = str(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(tried, "small", Erase("fill/0001"), Erase("fill/0002"))
        nursery.start_soon(tried, "large", Record("log", b"large"), Keep("large", bytes(3_000_000)))
        nursery.start_soon(tried, "kept", Record("log", b"kept"), Keep("fill/0000", b"other"))
    assert "the disk is full, and nothing of this was stored; free" in outcomes["large"]
    assert "fill/0000 is stored already" in outcomes["kept"]
    assert outcomes["small"] == "made"
    assert await store.entries("log") == [b"%d" % number for number in range(count)]
    assert len(await store.keys("")) == count - 2
    await store.commit(Erase("fill/"))
    with trio.fail_after(WAITS):
        while outcomes["large"] != "made":  # room is given back bit by bit
            outcomes["large"] = "made"
            await tried("large", Put("large", bytes(3_000_000)))


async def test_a_full_disk_refuses_what_does_not_fit_and_nothing_else(small_disk):
    async with aclosing(await SqliteStore.open(small_disk / "store.db")) as store:
        await check_full(store)
    async with aclosing(await SqliteStore.open(small_disk / "store.db")) as store:
        assert await store.keys("") == ["large"]


def fill_up(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while file.write(bytes(1000)):
            pass


async def test_a_disk_without_any_room_refuses_to_open_a_store_until_there_is_some(small_disk):
    async with aclosing(await SqliteStore.open(small_disk / "store.db")) as store:
        await store.commit(Keep("k", b"content"))
    with pytest.raises(OSError, match="No space left"):
        fill_up(small_disk / "junk")
    with pytest.raises(DiskFullError, match="free some of it"):
        await SqliteStore.open(small_disk / "store.db")
    with pytest.raises(StorageError, match="the disk is full, and nothing of this was stored; free some of it"):
        await SqliteStore.open(small_disk / "new.db")
    os.unlink(small_disk / "junk")
    async with aclosing(await SqliteStore.open(small_disk / "store.db")) as store:
        assert await store.blob("k") == b"content"


def full_after(pages: int) -> Callable[[Path], sqlite3.Connection]:
    def connect(path: Path) -> sqlite3.Connection:
        connection = sqlite_file.connect(path)
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        return connection

    return connect


async def test_a_file_that_cannot_grow_refuses_what_does_not_fit_and_nothing_else(path, monkeypatch):
    monkeypatch.setattr(sqlite_ends, "connect", full_after(500))
    async with aclosing(await SqliteStore.open(path)) as store:
        await check_full(store)


@contextmanager
def failing_writes() -> Iterator[None]:
    """Every write beyond the first 64 KiB of a file fails."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)


async def test_an_error_of_the_disk_ends_all_writing(path):
    store = await SqliteStore.open(path)
    await store.commit(Record("log", b"1"), Keep("k", b"1"))
    why = set()

    async def fails(change: Change) -> None:
        with pytest.raises(StoreLostError, match=r"the disk failed.*SQLITE_IOERR_WRITE.*start again") as caught:
            await store.commit(Record("log", b"2"), change)
        why.add(str(caught.value))

    with failing_writes():
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(fails, Keep(f"large/{number}", bytes(200_000)))
    await fails(Put("small", b""))
    assert len(why) == 1
    assert await store.entries("log") == [b"1"]
    assert await store.keys("") == ["k"]
    await store.aclose()
    async with aclosing(await SqliteStore.open(path)) as again:
        assert await again.entries("log") == [b"1"]
        await again.commit(Record("log", b"2"))


async def test_a_disk_that_also_fails_while_a_lost_store_is_closed_does_not_hide_why_it_is_lost(path, monkeypatch):
    async def failing(store: SqliteStore) -> None:
        monkeypatch.setattr(os, "fsync", lambda _: _raise(OSError(errno.EIO, os.strerror(errno.EIO))))
        async with aclosing(store):
            await store.commit(Keep("large", bytes(200_000)))

    store = await SqliteStore.open(path, marked=True)
    with failing_writes(), pytest.raises(StoreLostError, match=r"the disk failed.*SQLITE_IOERR_WRITE"):
        await failing(store)
    monkeypatch.undo()
    store = await SqliteStore.open(path, marked=True)
    monkeypatch.setattr(os, "fsync", lambda _: _raise(OSError(errno.EIO, os.strerror(errno.EIO))))
    with pytest.raises(StoreLostError, match=r"store\.db\.mark cannot be written: Input/output error"):
        await store.aclose()


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_nobody_waits_for_ever_when_the_writer_itself_fails(path, monkeypatch):
    store = await SqliteStore.open(path)

    def fails(end: WriteConnection, commits: object) -> dict[int, StorageError]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(WriteConnection, "transact", fails)
    for _ in range(3):
        with pytest.raises(StoreLostError, match="error of this program; start again"):
            await store.record("log", b"")
    await store.aclose()


# Who may have it, and where


async def test_a_store_has_one_owner(path):
    async with aclosing(await SqliteStore.open(path)) as store:
        link = path.with_name("link.db")
        link.symlink_to(path)
        for name in (path, link, path.parent / "." / "x" / ".." / path.name):
            with pytest.raises(InUseError, match=rf"in use by another server \(process {os.getpid()}\); stop that one"):
                await SqliteStore.open(name)
        await store.record("log", b"still works")
    async with aclosing(await SqliteStore.open(path)) as store:
        assert await store.entries("log") == [b"still works"]


def hold(path: Path, reports: Connection) -> None:
    opened(path)
    reports.send(os.getpid())
    signal.pause()


def test_a_store_has_one_owner_among_processes_and_is_free_when_it_is_killed(path):
    process, ours = started(hold, path)
    with pytest.raises(StorageError, match=f"process {ours.recv()}"):
        opened(path)
    process.kill()
    process.join()
    trio.run(opened(path).aclose)


async def test_files_are_for_their_owner_alone(path):
    path.touch(0o644)
    before = os.umask(0)
    try:
        async with aclosing(await SqliteStore.open(path)) as store:
            await store.record("log", b"")
            await store.snapshot(path.with_name("copy.db"))
            modes = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in os.scandir(path.parent)}
    finally:
        os.umask(before)
    names = ("store.db", "store.db-wal", "store.db-shm", "store.db.lock", "copy.db")
    assert modes == dict.fromkeys(names, 0o600)


async def test_another_programs_write_is_waited_for_and_then_refused(path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(sqlite_ends, "BUSY_SECONDS", 0.05)
    async with aclosing(await SqliteStore.open(path)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match=r"another program uses it.*close that program"):
                await store.record("log", b"1")
        await store.record("log", b"2")
        assert await store.entries("log") == [b"2"]


MOUNTS = """\
21 1 252:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
22 21 0:20 / /proc rw - proc proc rw
30 21 0:30 / /srv rw,relatime shared:2 master:1 - nfs4 host:/export rw
31 30 252:1 / /srv/local\\040disk rw - xfs /dev/vdb rw
32 21 0:31 / /mnt rw - ext4 /dev/vdc rw
33 32 0:32 / /mnt rw - fuse.sshfs me@host: rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/fsl/store.db", "ext4"),
        ("/srv/fsl/store.db", "nfs4"),
        ("/srv/local disk/store.db", "xfs"),
        ("/srv/local", "nfs4"),
        ("/srvx/store.db", "ext4"),
        ("/mnt/store.db", "fuse.sshfs"),
        ("/proc/x", "proc"),
    ],
)
def test_the_file_system_of_a_path_is_the_last_one_mounted_nearest_above_it(path, kind):
    assert file_system(MOUNTS, Path(path)) == kind


def test_where_nothing_is_mounted_the_kind_is_unknown():
    assert file_system("", Path("/x")) == ""
    assert file_system(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/stat")) == "proc"


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb2", "smb3", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs"]
)
async def test_a_network_file_system_is_refused(path, monkeypatch, kind):
    mounts = path.with_name("mountinfo")
    mounts.write_text(f"21 1 0:1 / / rw - {kind} somewhere rw\n")
    monkeypatch.setattr(disk, "MOUNTS", mounts)
    with pytest.raises(StorageError, match=rf"network file system \({kind}\).*name a file on a local disk"):
        await SqliteStore.open(path)
    assert os.listdir(path.parent) == ["mountinfo"]


async def test_where_mounts_are_not_told_nothing_is_refused(path, monkeypatch):
    monkeypatch.setattr(disk, "MOUNTS", path.with_name("missing"))
    await (await SqliteStore.open(path)).aclose()


async def test_a_missing_folder_a_file_for_a_folder_and_a_folder_for_a_file_are_refused(path):
    with pytest.raises(StorageError, match="folder does not exist; create it"):
        await SqliteStore.open(path.parent / "missing" / "store.db")
    path.touch()
    with pytest.raises(StorageError, match="its folder is a file"):
        await SqliteStore.open(path / "store.db")
    path.with_name("folder").mkdir()
    with pytest.raises(StorageError, match="it is a folder; name a file in it"):
        await SqliteStore.open(path.with_name("folder"))


async def test_a_read_only_disk_is_refused(small_disk):
    async with aclosing(await SqliteStore.open(small_disk / "store.db")) as store:
        await store.record("log", b"")
    await trio.run_process(["mount", "-o", "remount,ro", str(small_disk)])
    for name in ("store.db", "new.db"):
        with pytest.raises(StorageError, match="the file system is read-only; mount it for writing"):
            await SqliteStore.open(small_disk / name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to everything")
async def test_a_read_only_file_or_folder_is_refused(path):
    await (await SqliteStore.open(path)).aclose()
    path.chmod(0o400)
    with pytest.raises(StorageError, match="permission denied; the file and its folder must belong to the user"):
        await SqliteStore.open(path)
    path.parent.chmod(0o500)
    with pytest.raises(StorageError, match="permission denied"):
        await SqliteStore.open(path.with_name("new.db"))
    path.parent.chmod(0o700)


def read_only_as_nobody(path: Path, reports: Connection) -> None:
    """As a user who may read a store, and not write to it."""
    os.setgid(65534)
    os.setuid(65534)
    try:
        opened(path)
    except StorageError as error:
        reports.send(str(error))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("name", ["store.db", "new.db"])
def test_anothers_file_or_folder_is_refused(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("anothers")
    for above in takewhile(lambda above: above != Path(gettempdir()), (folder, *folder.parents)):
        above.chmod(0o755)
    trio.run(opened(folder / "store.db").aclose)
    (folder / "store.db").chmod(0o444)
    (folder / "store.db.lock").chmod(0o666)
    process, ours = started(read_only_as_nobody, folder / name)
    assert "permission denied; the file and its folder must belong to the user who runs this command" in ours.recv()
    process.join()


# What is not ours, or not whole


@contextmanager
def untouched(path: Path) -> Iterator[None]:
    before = path.read_bytes(), stat.S_IMODE(path.stat().st_mode)
    yield
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == before


def foreign(path: Path, statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(statements)
    path.chmod(0o644)


@pytest.mark.parametrize(
    "statements",
    [
        "CREATE TABLE mail (text)",
        "PRAGMA application_id = 7; CREATE TABLE mail (text)",
        "PRAGMA journal_mode = wal; PRAGMA user_version = 1",
        "PRAGMA application_id = 7",
    ],
)
async def test_a_database_of_another_program_is_left_alone(path, statements):
    foreign(path, statements)
    with untouched(path), pytest.raises(StorageError, match="database of another program; name another file"):
        await SqliteStore.open(path)


@pytest.mark.parametrize("version", [0, sqlite_file.FORMAT - 1, sqlite_file.FORMAT + 1])
async def test_a_store_of_another_format_is_refused_by_name(path, version):
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.record("log", b"")
    foreign(path, f"PRAGMA user_version = {version}")
    told = rf"is a store of format {version}, and this release has format {sqlite_file.FORMAT}.* Run that release; or"
    with untouched(path):
        with pytest.raises(StorageError, match=told):
            await SqliteStore.open(path)
        with pytest.raises(StorageError, match=told):
            ReadConnection(path)


async def test_tables_that_cannot_be_made_leave_an_empty_file(path, monkeypatch):
    monkeypatch.setattr(sqlite_file, "TABLES", f"{sqlite_file.TABLES} INSERT INTO nowhere VALUES (1);")
    with pytest.raises(StorageError, match="no such table: nowhere"):
        await SqliteStore.open(path)
    monkeypatch.undo()
    async with aclosing(await SqliteStore.open(path)) as store:
        assert await store.entries("log") == []


@pytest.mark.parametrize("junk", [b"text, not a database", b"SQLite format 3\0" + bytes(5000), bytes(100_000)])
async def test_a_file_that_is_not_a_database_is_left_alone(path, junk):
    path.write_bytes(junk)
    with untouched(path), pytest.raises(StoreLostError, match=r"is not a store|is damaged"):
        await SqliteStore.open(path)


async def damaged(path: Path, damage: Callable[[bytes], bytes]) -> SqliteStore:
    async with aclosing(await SqliteStore.open(path)) as store:
        kept = [Keep(f"k/{number}", bytes([number]) * 100_000) for number in range(20)]
        await store.commit(*kept, Record("log", b""))
    file = trio.Path(path)
    await file.write_bytes(damage(await file.read_bytes()))
    return await SqliteStore.open(path)


async def test_a_file_that_was_cut_is_refused(path):
    with pytest.raises(StoreLostError, match=r"is damaged.*do not put an older copy in its place"):
        await damaged(path, lambda data: data[: len(data) // 2])


async def test_damage_of_its_trees_is_found_when_it_is_opened(path):
    """Of every page but the first ones, the beginning."""

    def damage(data: bytes) -> bytes:
        page = sqlite_file.PAGE_BYTES
        return b"".join(
            data[start : start + page] if start < 2 * page else b"\x55" * 200 + data[start + 200 : start + page]
            for start in range(0, len(data), page)
        )

    with pytest.raises(StoreLostError, match="is damaged"):
        await damaged(path, damage)


def test_a_setting_that_does_not_take_is_refused():
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(StorageError, match="journal_mode is memory instead of wal"):
            sqlite_file.insist(connection, "journal_mode", "wal")
        sqlite_file.insist(connection, "synchronous", 2)


async def test_commits_are_synced_and_what_is_deleted_is_overwritten(path, monkeypatch):
    connections = []
    monkeypatch.setattr(
        sqlite_ends, "connect", lambda path: connections.append(sqlite_file.connect(path)) or connections[-1]
    )
    async with aclosing(await SqliteStore.open(path)):
        for setting, value in (("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1)):
            assert connections[0].execute(f"PRAGMA {setting}").fetchone() == (value,)


async def test_the_log_is_moved_into_the_file_when_nobody_writes(path, monkeypatch):
    monkeypatch.setattr(sqlite_store, "REST_SECONDS", 0.2)
    monkeypatch.setattr(sqlite_ends, "LOG_BYTES", 1_000_000)
    async with aclosing(await SqliteStore.open(path)) as store:
        for number in range(20):
            await store.commit(Keep(f"k/{number}", bytes(100_000)))
        assert path.stat().st_size < 500_000, "commits that follow each other do not wait for the file"
        await settles(lambda: path.stat().st_size > 2_000_000)


@pytest.mark.slow
async def test_the_log_does_not_grow_without_end(path, monkeypatch):
    monkeypatch.setattr(sqlite_store, "REST_SECONDS", 3600.0)
    for bound in ("LOG_BYTES", "PRESSING_LOG_BYTES", "AGAIN_BYTES"):
        monkeypatch.setattr(sqlite_ends, bound, getattr(sqlite_ends, bound) // 16)
    longest = 0
    async with aclosing(await SqliteStore.open(path)) as store, trio.open_nursery() as nursery:
        nursery.start_soon(reading, store, nursery.cancel_scope)
        for number in range(200):  # small ones: what each writes to the log are its pages, ten times what it holds
            await store.commit(Record("log", b"small"), Put(f"k/{number % 7}", bytes(1_000)), Erase("gone"))
            longest = max(longest, path.with_name("store.db-wal").stat().st_size)
        nursery.cancel_scope.cancel()
    assert sqlite_ends.LOG_BYTES < longest <= 2 * sqlite_ends.LOG_BYTES


async def reading(store: SqliteStore, scope: trio.CancelScope) -> None:
    """Read what there is, without a pause."""
    while not scope.cancel_called:
        await store.entries("log")


# Room, erasing, copies


def test_room_is_what_the_disk_has_free(path):
    free = os.statvfs(path.parent).f_bavail * os.statvfs(path.parent).f_frsize
    assert room(path) == pytest.approx(free, rel=0.1)
    for function in (room, partial(check_room, needed=0)):
        with pytest.raises(StorageError, match="folder does not exist"):
            function(path.parent / "missing" / "store.db")


@pytest.mark.parametrize(
    ("block", "blocks", "free", "fits", "told"),
    [
        (1000, 10_000_000, 4_000_000, 3_000_000_000, r"4,000 MB free; 3,000 MB are needed, and 1,000 MB \(a tenth of"),
        (4096, 400 * 2**18, 37 * 2**18, 33 << 30, r"4,295 MB \(a tenth of the disk, or 4 GiB\) must stay free"),
    ],
    ids=["a tenth of the disk", "of 400 GB with 37 GB free, 4 GiB"],
)
def test_some_of_the_disk_stays_free(path, monkeypatch, block, blocks, free, fits, told):
    usage = os.statvfs_result([block, block, blocks, 0, free, 0, 0, 0, 0, 0, 255])
    monkeypatch.setattr(os, "statvfs", lambda path: usage)
    check_room(path, fits)
    with pytest.raises(StorageError, match=told):
        check_room(path, fits + 1)


async def test_a_file_with_a_second_name_is_refused(path):
    """The lock and the log go by the name: by the other one a second server would find neither."""
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.record("log", b"1")
        other = path.with_name("other.db")
        other.hardlink_to(path)
        with pytest.raises(StorageError, match=r"other\.db is one of 2 names of the same file \(hard links\)"):
            await SqliteStore.open(other)
        other.unlink()
        await store.record("log", b"2")


async def test_a_log_that_goes_before_the_first_commit_is_noticed(path):
    async with aclosing(await SqliteStore.open(path)) as store:
        path.with_name("store.db-wal").unlink()
        with pytest.raises(StoreLostError, match=r"store\.db-wal was removed or replaced while the store was in use"):
            await store.record("log", b"lost")


async def settles(condition: Callable[[], bool]) -> None:
    with trio.fail_after(WAITS):
        while not condition():  # noqa: ASYNC110 - of files, which send no events
            await trio.sleep(0.005)


async def test_erased_bytes_leave_the_disk_while_the_store_goes_on(path, monkeypatch):
    monkeypatch.setattr(sqlite_store, "REST_SECONDS", 0.2)
    secret = random.Random(3).randbytes(64)
    log = path.with_name("store.db-wal")

    def found() -> bool:
        return secret in path.read_bytes() + log.read_bytes()

    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(
            Keep("round/1/share", secret * 100_000), Record("round/1", secret), Keep("round/2", b"other")
        )
        assert found()
        await store.commit(Erase("round/1"))
        await settles(lambda: not found())
        await settles(lambda: log.stat().st_size == 0 and path.stat().st_size < 200_000)
        assert await store.keys("") == ["round/2"]
    assert secret not in path.read_bytes()


def erase_and_die(path: Path, secret: bytes) -> None:
    """Erase something, and be killed before it is overwritten."""

    async def main() -> None:
        store = await SqliteStore.open(path)
        await store.commit(
            *(Keep(f"round/1/{number}", secret * 50_000) for number in range(4)), Keep("round/2", b"other")
        )
        WriteConnection.tidy = lambda end: os.kill(os.getpid(), signal.SIGKILL)
        await store.commit(Erase("round/1"))
        await trio.sleep_forever()

    trio.run(main)


async def test_what_was_erased_before_a_crash_is_overwritten_after_it(path):
    secret = random.Random(4).randbytes(64)
    dies(erase_and_die, path, secret)
    async with aclosing(await SqliteStore.open(path)) as store:
        assert await store.keys("") == ["round/2"]
        log = path.with_name("store.db-wal")
        await settles(lambda: log.stat().st_size == 0 and path.stat().st_size < 200_000)
    assert secret not in path.read_bytes()


async def test_erased_bytes_go_also_while_commits_never_cease(path, monkeypatch):
    monkeypatch.setattr(sqlite_store, "OVERDUE_SECONDS", 0.5)
    secret = random.Random(5).randbytes(64)
    ended = False

    async def work(store: SqliteStore, task: int) -> None:
        while not ended:
            await store.commit(Put(f"v/{task}", b""))

    async with aclosing(await SqliteStore.open(path)) as store, trio.open_nursery() as nursery:
        await store.commit(Keep("round/1/share", secret * 200_000))
        for task in range(20):
            nursery.start_soon(work, store, task)
        await store.commit(Erase("round/1"))
        await settles(lambda: secret not in path.read_bytes() + path.with_name("store.db-wal").read_bytes())
        ended = True


async def test_erased_bytes_wait_for_a_rest_also_after_a_long_one(path, monkeypatch):
    monkeypatch.setattr(sqlite_store, "REST_SECONDS", 3600.0)
    secret = random.Random(6).randbytes(64)
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(Keep("round/1/share", secret * 1_000))
        now = time.monotonic
        monkeypatch.setattr(sqlite_store, "time", SimpleNamespace(monotonic=lambda: now() + 1_000))
        await store.commit(Erase("round/1"))
        await trio.sleep(0.3)
        assert secret in path.with_name("store.db-wal").read_bytes()


async def test_a_checkpoint_does_not_wait_for_a_reader(path):
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(Keep("k", bytes(100_000)))
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM blob").fetchall()
            with trio.fail_after(WAITS):
                await store.commit(Erase("k"))
                for number in range(20):
                    await store.commit(Keep(f"large/{number}", bytes(1_000_000)))
        assert len(await store.keys("large/")) == 20


def made_a_store(copy: Path) -> None:
    """A copy is refused as a store; what it holds is looked at all the same."""
    with pytest.raises(StorageError, match=r"is a copy made by `fsl-async backup`.*`fsl-async restore` makes a store"):
        WriteConnection(copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(f"PRAGMA application_id = {sqlite_file.APPLICATION}")


async def test_a_copy_is_one_state_of_a_running_store(path):
    copy = path.with_name("copy.db")
    async with aclosing(await SqliteStore.open(path)) as store:

        async def work(task: int) -> None:
            for step in range(30):
                await store.commit(Record("log", b"%d %d" % (task, step)), Keep(f"{task}/{step}", bytes(5_000)))

        async with trio.open_nursery() as nursery:
            for task in range(5):
                nursery.start_soon(work, task)
            await store.record("begun", b"")
            await store.snapshot(copy)
        with pytest.raises(StorageError, match=r"copy\.db exists already, and is not overwritten; name a new file"):
            await store.snapshot(copy)
        with pytest.raises(StorageError, match="folder does not exist"):
            await store.snapshot(path.parent / "missing" / "copy.db")
    made_a_store(copy)
    async with aclosing(await SqliteStore.open(copy)) as copied:
        assert await copied.entries("begun") == [b""]
        entries = [tuple(map(int, entry.split())) for entry in await copied.entries("log")]
        assert sorted(f"{task}/{step}" for task, step in entries) == await copied.keys("")
        for task in range(5):
            assert [step for at, step in entries if at == task] == list(range(sum(at == task for at, _ in entries)))


async def test_a_copy_of_a_store_that_another_process_uses_has_all_that_was_acknowledged(path):
    """It is read back as a store of its own, and goes on; the other process loses nothing and notices nothing."""
    copy = path.with_name("copy.db")
    process, reports = started(keep_committing, path, dict.fromkeys(range(4), 0))
    before = counted(reports.recv() for _ in range(200))
    await snapshot(path, copy)
    meanwhile = [reports.recv() for _ in range(50)]
    process.kill()
    process.join()
    after = before | counted([*meanwhile, *remaining(reports)])
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    made_a_store(copy)
    async with aclosing(await SqliteStore.open(copy)) as store:
        for task, least in before.items():
            count = len(await store.entries(f"log/{task}"))
            assert least <= await check_task(store, task, count)
        await store.record("log", b"goes on")
    async with aclosing(await SqliteStore.open(path)) as store:
        for task, count in after.items():
            await check_task(store, task, count)
        assert await store.entries("log") == []


def counted(reports: Iterable[tuple[int, int]]) -> dict[int, int]:
    """How many commits of each task were acknowledged."""
    return {task: step + 1 for task, step in reports}


async def test_what_is_no_store_is_not_copied(path):
    copy = path.with_name("copy.db")
    with pytest.raises(StorageError, match=r"store\.db is not there; name the store of a server"):
        await snapshot(path, copy)
    path.write_bytes(b"")
    with pytest.raises(StorageError, match="holds no store"):
        await snapshot(path, copy)
    path.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreLostError, match="is not a store"):
        await snapshot(path, copy)
    path.unlink()
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(*(Keep(f"k/{number}", bytes(20_000)) for number in range(50)))
        copy.with_name("copy.db-wal").write_bytes(b"another store's log")
        with pytest.raises(StorageError, match=r"copy\.db-wal exists already"):
            await snapshot(path, copy)
    data = bytearray(path.read_bytes())
    data[3 * 8192 : 5 * 8192] = bytes(2 * 8192)
    path.write_bytes(data)
    copy.with_name("copy.db-wal").unlink()
    with pytest.raises(StoreLostError, match="is damaged"):
        await snapshot(path, copy)
    assert sorted(file.name for file in path.parent.iterdir() if "copy" in file.name) == []


async def test_a_copy_to_a_full_disk_leaves_nothing(path, small_disk):
    async with aclosing(await SqliteStore.open(path)) as store:
        await store.commit(Keep("large", bytes(10_000_000)))
        with pytest.raises(DiskFullError, match="the disk is full"):
            await store.snapshot(small_disk / "copy.db")
        assert os.listdir(small_disk) == []
        await store.record("log", b"goes on")


async def test_closing_ends_the_thread(tmp_path):
    def writes() -> bool:
        return any(thread.name == "writes one of a kind.db" for thread in threading.enumerate())

    async with aclosing(await SqliteStore.open(tmp_path / "one of a kind.db")):
        assert writes()
    assert not writes()
