"""What lies in a server's folder, what belongs to what, and what a start would say.

Nothing in the folder is changed, nothing listens, and no other party is asked. Whoever opens a store moves its log into
it; so a store is opened as a start opens it, but in a copy of store, log and mark, which is private and goes away.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from fsl_async.counting import count_of
from fsl_async.errors import FslError, MisuseError, StorageError
from parties.commands.preflight.files import own_keys
from parties.commands.preflight.findings import Check, Doubt, Finding, found, in_thread, loaded
from parties.compute import InlineLane
from parties.deployment.blobs import blobs_owner, refuse_others_bulk
from parties.deployment.server import open_store, server_setup
from parties.files.disk import exists, in_use, refused
from parties.files.toml import read_toml
from parties.server.history import PastRounds, Progress
from parties.server.lasting_state import LastingState
from parties.server.round.reading import ReadBack, StoredSubmission
from parties.server.store_layout import PROGRESS, RequestKey, dense_name, part_name, round_prefix
from parties.settings.host_file import HostFile, load_party
from parties.settings.party_file import ServerFile
from parties.settings.reading import InMemory, OnDisk
from parties.settings.task_file import Deployment
from parties.storage.blobs.blobs import DamagedBlobError
from parties.storage.blobs.folder import FolderBlobs, check_owner, check_private, size_below
from parties.storage.blobs.memory import missing
from parties.storage.mark import StoreAge, mark_path, read_mark, refuse_missing
from parties.storage.sqlite_connections import ReadConnection
from parties.storage.sqlite_errors import translated
from parties.storage.store import Store, decode_stored

SQLITE = b"SQLite format 3\0"


async def doctor(folder: Path) -> list[Finding]:
    """Examine the folder of a server, or of several; or the one server that a file describes.

    Raises:
        MisuseError: there is no server's file.
    """
    return [finding for config in _configurations(folder) for finding in await _examined(config)]


def _configurations(folder: Path) -> list[Path]:
    alone = exists(folder) and folder.is_file()
    configs = [folder] if alone else [path for path in sorted(folder.glob("*.toml")) if _is_server_s(path)]
    if not configs:
        raise MisuseError(f"{folder} has no server's TOML file; name the folder of one, or the file")
    return configs


def _is_server_s(path: Path) -> bool:
    try:
        return "server" in read_toml(path)
    except MisuseError:
        return True  # its finding says what is wrong with it


async def _examined(config: Path) -> list[Finding]:
    first, party = loaded("configuration", partial(load_party, config), lambda _: f"{config} can be read")
    findings = [first]
    for file in party.tasks if isinstance(party, HostFile) else ():
        told, deployment = loaded("task", partial(Deployment.load, file.task), partial(_task, file))
        findings.append(told)
        if deployment is not None:
            findings += [
                await found(name, partial(_read_by, check)) for name, check in _checks(config, file, deployment)
            ]
    return findings


def _task(file: ServerFile, deployment: Deployment) -> str:
    return f"{file.task} is of task {deployment.task.name!r}"


def _checks(config: Path, file: ServerFile, deployment: Deployment) -> Iterator[tuple[str, Check]]:
    yield "keys", in_thread(own_keys, file, deployment)
    if isinstance(file.store, OnDisk):
        for name, check in (("store", _store), ("mark", _mark), ("store's log", _store_log), ("copies", _copies)):
            yield name, in_thread(check, file.store.path)
    yield "blobs", partial(_blobs, file, deployment)
    yield "log", in_thread(_log, config)
    yield "start", partial(_start, config, file)


async def _read_by(check: Check) -> str:
    """What a check says; what the system refuses it is an error that names the file."""
    try:
        return await check()
    except OSError as error:
        raise refused(Path(str(error.filename)), error) from error


# ---- stores


@contextmanager
def _copied(path: Path) -> Iterator[Path]:
    """A private copy of a store with its log and its mark, as far as they are there; errors name the originals.

    Raises:
        StorageError: they cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="fsl-async-") as place:
        copy = Path(os.path.realpath(place)) / path.name
        try:
            for file in (path, path.with_name(f"{path.name}-wal"), mark_path(path)):
                if exists(file):
                    shutil.copyfile(file, copy.with_name(file.name))
        except OSError as error:
            raise refused(path, error) from error
        try:
            yield copy
        except FslError as error:
            raise type(error)(str(error).replace(str(copy.parent), str(path.parent))) from error


def _read(path: Path) -> tuple[Progress, StoreAge]:
    """Whose store a file is, how far it has got, and how old it is; all of it is what was written.

    Raises:
        StorageError: it is not a server's store, or damaged.
    """
    with _copied(path) as copy, closing(ReadConnection(copy)) as end, closing(sqlite3.connect(copy)) as names:
        for key in end.keys(""):
            end.blob(key)
        with translated(copy):
            journals = names.execute("SELECT DISTINCT CAST(name AS BLOB) FROM journal").fetchall()
        for (name,) in journals:
            end.entries(name.decode(errors="replace"))
        if not end.keys(PROGRESS):
            raise StorageError(f"{path} is no server's store: no server was started with it yet, or it is a client's")
        return decode_stored(end.blob(PROGRESS), Progress, "the store's standing"), end.life()


def _store(path: Path) -> str:
    if not exists(path):
        refuse_missing(path)
        return f"{path} is not there, nor a mark of it: a start makes it"
    return f"{path} is {_told(*_read(path))}; all of it is what was written"


def _told(progress: Progress, life: StoreAge) -> str:
    until = f"after round {progress.settled}" if progress.settled else "before its first round is over"
    return f"store {_short(life)} of S{progress.server} {until}, with {life.transactions} transactions"


def _short(life: StoreAge) -> str:
    return life.identity.hex()[:8]


def _mark(path: Path) -> str:
    marked = read_mark(path)
    if marked is not None:
        return f"{mark_path(path)} is of store {_short(marked)}, with {marked.transactions} transactions"
    if exists(path):
        raise Doubt(f"there is no {mark_path(path)}: only you know whether this is what the server used last")
    return "none"


def _store_log(path: Path) -> str:
    log = path.with_name(f"{path.name}-wal")
    if not exists(log):
        return "none: the store was closed well, or its log was removed, which the mark would show"
    if not exists(path):
        raise StorageError(f"{log} is the log of a store that is not there: put {path} back beside it")
    return f"{log} has {log.stat().st_size:,} bytes of {path}; they belong together"


def _copies(path: Path) -> str:
    """Other stores and copies beside this one, and what each is good for."""
    others = [other for other in sorted(path.parent.iterdir()) if other != path and _is_database(other)]
    lines = [f"{other} {_use(path, other)}" for other in others[:20]]
    return "; ".join(lines) or "none beside the store"


def _is_database(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:  # a folder, or another user's
        return False


def _use(path: Path, other: Path) -> str:
    try:
        progress, life = _read(other)
        marked = read_mark(path)
    except StorageError:
        return "is no server's store that can be read"
    if marked is None:
        use = "only you know whether the server has run since"
    elif marked.identity != life.identity:
        use = f"{path} was another store"
    elif marked.transactions > life.transactions:
        use = "the server has run since: of use for its model alone"
    else:
        use = "the server has done nothing since: `fsl-async restore` takes it"
    return f"is {_told(progress, life)}: {use}"


# ---- what lies beside stores


async def _blobs(file: ServerFile, deployment: Deployment) -> str:
    """Whose blobs they are, and whether those are there that the running round cannot do without.

    A part that the other server carries may be missing here: it is forwarded again. Without dense blocks nothing here
    tells who carries it; and what is in a part is compared when it is added.
    """
    folder = file.blobs_folder
    if folder is None or not isinstance(file.store, OnDisk):
        return file.blobs.url or "in memory, as the store is"
    if not exists(folder):
        if exists(file.store.path):
            raise Doubt(f"{folder} is missing, but the store is not: mount its disk, or a start makes it anew")
        return f"{folder} is not there: a start makes it"
    try:
        check_private(folder)
        check_owner(folder, blobs_owner(deployment, file.server), create=False)
    except OSError as error:
        raise refused(folder / ".owner", error) from error
    if not exists(path := file.store.path):
        raise Doubt(f"{folder} is this server's, but {path} is not there: put it back, or `fsl-async restore` a copy")
    lost = await _lost_blobs(path, folder, deployment)
    if lost:
        several = count_of(len(lost), "blob of the running round is", "blobs of the running round are")
        raise Doubt(f"{several} missing or altered in {folder}, and the round waits for them: {lost[0]}")
    return f"{folder} is this server's, {size_below(folder):,} bytes; nothing that its round needs is missing"


async def _lost_blobs(path: Path, folder: Path, deployment: Deployment) -> list[str]:
    read, names = ReadBack(FolderBlobs(folder), InlineLane(), deployment.task), []
    with _copied(path) as copy, closing(ReadConnection(copy)) as end:
        progress = decode_stored(end.blob(PROGRESS), Progress, "the store's standing")
        prefix = round_prefix(progress.settled + 1)
        places = end.keys(f"{prefix}/submissions/")
        submissions = [decode_stored(end.blob(place), StoredSubmission, place) for place in places]
    for one in (each for each in submissions if each.dense):  # what this server carries
        place = part_name(prefix, RequestKey(one.client, "submit", 0), one.part)
        try:
            await read.dense(dense_name(prefix, one.client, one.dense), one.dense, one.msk)
            if await FolderBlobs(folder).size(place) is None:
                raise missing(place)
        except DamagedBlobError as error:
            names.append(str(error))
    return names


def _log(config: Path) -> str:
    logs = sorted(config.parent.glob("*.log"))
    if seen := [path for path in logs if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]:
        raise Doubt(f"others can read {seen[0]}, which has clients' names: `chmod 600` it")
    return ", ".join(f"{path} has {path.stat().st_size:,} bytes" for path in logs) or "none here; in the journal?"


# ---- the start


async def _start(config: Path, file: ServerFile) -> str:
    """What a start would come to: it is made, with the copy of the store, up to where it would listen."""
    without = msgspec.structs.replace(file, store=InMemory(), blobs=type(file.blobs)(), compute=type(file.compute)())
    setup = await server_setup(config, file=without, lane=InlineLane())
    if not isinstance(file.store, OnDisk):
        return "it begins with round 1, because its store is in memory"
    if in_use(file.store.path):
        raise Doubt("the server is running; `fsl-async status` asks it")
    with _copied(file.store.path) as copy:
        store = await open_store(OnDisk(copy))
        try:
            lasting = LastingState(setup)
            await lasting.restore(store)
            if file.blobs_folder is not None and exists(file.blobs_folder):
                await refuse_others_bulk(FolderBlobs(file.blobs_folder), store)
            return await _next(store, lasting.progress.settled)
        finally:
            await store.aclose()


async def _next(store: Store, settled: int) -> str:
    past, number = PastRounds(store), settled + 1
    if await past.gives_up(settled):
        raise Doubt(f"it starts, and aborts round {number}, which had begun when its store was copied")
    if not await past.has_begun(number):
        return f"it starts, and opens round {number}"
    submissions = len(await store.keys(f"{round_prefix(number)}/submissions/"))
    return f"it starts, and goes on with round {number}, which has {count_of(submissions, 'submission', 'submissions')}"
