"""A copy of a server's store and of its blobs, made while the server runs or after it has stopped; and back.

Rules: the copy is the store as it was at one moment, complete or not there at all; nothing is overwritten; a copy that
cannot be read back is removed. It is marked as a copy.

Blobs in a folder are copied after the store, into a folder beside the copy: a blob is put before the store refers to
it, so what the copy refers to is there, unless the server has ended a round meanwhile; then it has done something
since, and the copy is of use for its model alone. Blobs in an object store stay where they are.

A server that resumes from a copy does not know what it has sent since. So a copy cannot be used as a store; `restore`
makes one of it, and only where that is known to be harmless:

- The mark that still lies beside the old store's place says that the server has done nothing since: the server resumes
  as if nothing had happened.
- The mark says that the server has done something since, or belongs to another store: refused.
- There is no mark any more (another disk, another host): the operator is asked, and answers for it. The server aborts
  the round that was running or being tossed for in the copy, unless it had committed to its share there, because then
  the sum is fixed. So no second sum of a round is opened with this server's help.

The store itself remembers that it was restored.

The blobs that belong to the copy, in the folder beside it, are brought to their place before the store is there: a
store never refers to what is not there yet. What lies at that place already stays.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import InUseError, exists, refused, replaced_by, sole_use
from parties.files.models import save_model, state_path
from parties.outcome import Model
from parties.server.history import Progress, Restore
from parties.server.store_layout import PROGRESS, RESTORES, round_prefix
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from parties.storage.blobs.folder_copy import copy_folder
from parties.storage.mark import StoreAge, mark_path, note_backup, read_mark, write_mark
from parties.storage.sqlite_connections import Commit, ReadConnection, WriteConnection
from parties.storage.sqlite_errors import translated
from parties.storage.sqlite_file import APPLICATION, connect, copy
from parties.storage.store import Record, decode_stored

MODEL_PREFIX, STATE_PREFIX = "model/", "state/"


@dataclass(frozen=True)
class Backup:
    """A copy that was made.

    Attributes:
        server: whose store it is, 0 or 1.
        store: the file that was copied.
        target: the copy.
        size: of the copy, in bytes.
        settled: the last round that was settled by then; 0 before the first.
        blobs: the folder of the blobs' copy; None where they lie in no folder.
        blobs_size: of that, in bytes.
    """

    server: int
    store: Path
    target: Path
    size: int
    settled: int
    blobs: Path | None
    blobs_size: int


def back_up(file: ServerFile, target: Path, model: Path | None) -> Backup:
    """Copy a server's store into a new file (0600), checked; it holds secrets, as the store does.

    Args:
        file: the server's own file.
        target: the copy.
        model: where to write the copy's model, and beside it what the task's optimizer or own rule keeps, if it keeps
            anything; None: neither is written.

    Raises:
        MisuseError: the store is in memory, or does not exist; or the model's file has a wrong suffix.
        StorageError: one of the files exists already or cannot be written, or the store is damaged or not a store.
    """
    source, blobs = _source(file), file.blobs_folder
    copied = blobs_beside(target) if blobs is not None and exists(blobs) else None
    if copied is not None and exists(copied):
        raise StorageError(f"{copied}, where the bulk of {target} goes, exists already; name the copy otherwise")
    for new in [target, *([model, state_path(model)] if model else [])]:
        if exists(new):
            raise StorageError(f"{new} exists already, and is not overwritten; name a new file")
    _read(source)
    copy(source, target)
    try:
        progress, _, _ = _read(target)
        size = copy_folder(blobs, copied) if blobs is not None and copied is not None else 0
        if model:
            state = _arrays(target, progress, STATE_PREFIX)
            if state:
                save_model(state_path(model), state)
            save_model(model, _arrays(target, progress, MODEL_PREFIX))
    except BaseException:
        target.unlink()
        if copied is not None:
            shutil.rmtree(copied, ignore_errors=True)
        raise
    note_backup(source)
    return Backup(progress.server, source, target, target.stat().st_size, progress.settled, copied, size)


def blobs_beside(copy: Path) -> Path:
    """The folder of the blobs that belong to a store's copy."""
    return copy.with_suffix(".blobs")


def _source(file: ServerFile) -> Path:
    if not isinstance(file.store, OnDisk):
        raise MisuseError('the store is in memory: there is nothing to copy; set store = "FILE"')
    if not exists(file.store.path):
        raise MisuseError(f"{file.store.path}: there is no store yet; the server makes it when it starts")
    return file.store.path


def _arrays(path: Path, progress: Progress, prefix: str) -> Model:
    """The model that a store holds, or the state."""
    forms = {key: form for key, form in progress.forms.items() if key.startswith(prefix)}
    with closing(ReadConnection(path)) as end:
        return {
            key.removeprefix(prefix): np.frombuffer(end.blob(key), dtype).reshape(shape)
            for key, (dtype, shape) in forms.items()
        }


PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Restored:
    """A store that was made from a copy.

    Attributes:
        server: whose store it is, 0 or 1.
        store: its file.
        settled: the last round that was settled in the copy.
        newest: whether the server is known to have done nothing since the copy was made.
    """

    server: int
    store: Path
    settled: int
    newest: bool


def restore(file: ServerFile, copy: Path, now: float, answered: Callable[[Progress], None]) -> Restored:
    """Make a server's store from a copy; the copy is not changed.

    Args:
        file: the server's own file.
        copy: the file that `backup` wrote, or a store that was copied by hand while its server was stopped.
        now: seconds since 1970.
        answered: called where no mark says whether the server has run since the copy was made; raises what `restore`
            is to raise unless somebody knows that it has not.

    Raises:
        MisuseError: the store is in memory, or the copy does not exist.
        StorageError: the store exists already, the server has done something since the copy was made, the copy is
            another server's or damaged, or the store cannot be written.
    """
    if not isinstance(file.store, OnDisk):
        raise MisuseError('the store is in memory: nothing can be put there; set store = "FILE"')
    place = file.store.path
    if not exists(copy) or not copy.is_file():
        what = "is not a file" if exists(copy) else "is not there"
        raise MisuseError(f"{copy} {what}; name what `fsl-async backup` wrote")
    try:
        with sole_use(place):
            return _restore(file, place, copy, now, answered)
    except InUseError as error:
        raise InUseError(f"{error}; nothing is restored while a server runs") from error


def _restore(file: ServerFile, place: Path, copy: Path, now: float, answered: Callable[[Progress], None]) -> Restored:
    _refuse_occupied(place, copy)
    standing, begun, then = _read(copy)
    if standing.server != file.server:
        raise StorageError(
            f"{copy} is a store of S{standing.server}, and {place} is to be S{file.server}'s; name its own copy"
        )
    newest = _is_newest(place, copy, then)
    if not newest:
        answered(standing)
    blobs, copied = file.blobs_folder, blobs_beside(copy)
    if blobs is not None and copied.is_dir():
        copy_folder(copied, blobs)
    restored = Restore(settled=standing.settled, newest=newest, gives_up=begun and not newest, at=now)
    entry = msgspec.msgpack.encode(restored)
    write_mark(place, _made_store(place, entry) if place.exists() else _copied(place, copy, entry))
    return Restored(standing.server, place, standing.settled, newest)


def _refuse_occupied(place: Path, copy: Path) -> None:
    """Refuse to overwrite a store or to separate one from its log; but a copy may become a store where it lies."""
    if exists(place) and place.samefile(copy):
        return
    for there in (place, place.with_name(f"{place.name}-wal"), copy.with_name(f"{copy.name}-wal")):
        if exists(there):
            raise StorageError(
                f"{there} exists; put it aside first, with its -wal and -shm, and leave {mark_path(place).name} where "
                "it is (of a store that was stopped well no -wal is left)"
            )


def _read(path: Path) -> tuple[Progress, bool, StoreAge]:
    """A store's progress, whether it has begun the next round's toss, and how many transactions it holds.

    Raises:
        StorageError: it is not a server's store, or damaged.
    """
    with closing(ReadConnection(path)) as end:
        if not end.keys(PROGRESS):
            raise StorageError(f"{path} is not a server's store, or no server has been started with it yet")
        standing: Progress = decode_stored(end.blob(PROGRESS), Progress, "the store's standing")
        return standing, bool(end.entries(f"{round_prefix(standing.settled + 1)}/toss")), end.life()


def _is_newest(place: Path, copy: Path, then: StoreAge) -> bool:
    """Whether the mark says that nothing was done since the copy was made; false where there is no mark.

    Raises:
        StorageError: something was done since.
    """
    last = read_mark(place)
    if last is None:
        return False
    if last.identity != then.identity:
        raise StorageError(
            f"{copy} is not a copy of the store that was used at {place} last: its server has begun anew since, and "
            "going on from this could expose a client; nothing is restored"
        )
    if last.transactions > then.transactions:
        raise StorageError(
            f"{copy} is older than what its server has done ({then.transactions} transactions of {last.transactions}), "
            "and going on from it could answer a round a second time and expose a client; nothing is restored. Begin "
            "anew on both servers, as docs/operations.md says; `fsl-async backup --model` wrote the model"
        )
    return True


def _copied(place: Path, copy: Path, entry: bytes) -> StoreAge:
    try:
        with replaced_by(place) as new, copy.open("rb") as source:
            shutil.copyfileobj(source, new, PIECE_BYTES)
            new.flush()
            return _made_store(Path(new.name), entry)
    except OSError as error:
        raise refused(place, error) from error


def _made_store(path: Path, entry: bytes) -> StoreAge:
    """Turn a file into a store, which records that; how many transactions it holds then."""
    with translated(path), closing(connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
    with closing(WriteConnection(path)) as end:
        end.transact([Commit.of((Record(RESTORES, entry),))])
        return end.life
