"""A copy of a server's store and of its blobs, made while the server runs, or after it has stopped.

Rules: the copy is the store as it was at one moment, complete or not there at all; nothing is overwritten; a copy that
cannot be read back is removed. It is marked as a copy: see `parties.deployment.restore`.

Blobs in a folder are copied after the store, into a folder beside the copy: a blob is put before the store refers to
it, so what the copy refers to is there, unless the server has ended a round meanwhile; then it has done something
since, and the copy is of use for its model alone. Blobs in an object store stay where they are.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import exists
from parties.files.models import save_model, state_path
from parties.outcome import Model
from parties.server.history import Progress
from parties.server.store_layout import PROGRESS
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from parties.storage.blobs.folder_copy import copy_folder
from parties.storage.mark import note_backup
from parties.storage.sqlite_connections import ReadConnection
from parties.storage.sqlite_file import copy
from parties.storage.store import decode_stored

__all__ = ["Backup", "back_up", "blobs_beside"]

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
    for new in [target, *([copied] if copied else []), *([model, state_path(model)] if model else [])]:
        if exists(new):
            raise StorageError(f"{new} exists already, and is not overwritten; name a new file")
    _progress(source)
    copy(source, target)
    try:
        progress = _progress(target)
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


def _progress(path: Path) -> Progress:
    """The progress that a store holds.

    Raises:
        StorageError: it is not a server's store, or damaged.
    """
    with closing(ReadConnection(path)) as end:
        if not end.keys(PROGRESS):
            raise StorageError(f"{path} is not a server's store, or no server has been started with it yet")
        progress: Progress = decode_stored(end.blob(PROGRESS), Progress, "the store's standing")
        return progress


def _arrays(path: Path, progress: Progress, prefix: str) -> Model:
    """The model that a store holds, or the state."""
    forms = {key: form for key, form in progress.forms.items() if key.startswith(prefix)}
    with closing(ReadConnection(path)) as end:
        return {
            key.removeprefix(prefix): np.frombuffer(end.blob(key), dtype).reshape(shape)
            for key, (dtype, shape) in forms.items()
        }
