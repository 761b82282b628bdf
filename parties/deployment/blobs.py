"""The place of a server's bulk, opened as its file says: by the server, and by its workers."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import Final

import trio

from fsl_async.errors import MisuseError, StorageError
from parties.files.disk import exists
from parties.files.toml import read_toml
from parties.server.history import PastRounds, Progress
from parties.server.storage import PAUSE
from parties.server.store_layout import PROGRESS
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from parties.settings.task_file import Deployment
from parties.storage.blobs.blobs import Blobs, BlobsAwayError
from parties.storage.blobs.folder import FolderBlobs
from parties.storage.blobs.memory import MemoryBlobs
from parties.storage.mark import mark_path
from parties.storage.store import DiskFullError, Store, decode_stored

_log = logging.getLogger("parties.deployment")

WITHOUT_OBJECTS: Final = "bulk in an object store needs obstore: pip install 'fsl-async[objects]'"


async def open_blobs(file: ServerFile, deployment: Deployment, *, create: bool = True) -> Blobs:
    """Open the place of a server's bulk, which the caller closes; while it cannot be reached or made, wait for it.

    Args:
        file: the server's own file.
        deployment: the task file.
        create: whether the place may be made; a worker opens what its server has made.

    Raises:
        MisuseError: obstore is not installed, or an option is wrong.
        StorageError: the place cannot be used; the message says what to do.
    """
    while True:
        try:
            return await open_once(file, deployment, create=create)
        except (BlobsAwayError, DiskFullError) as error:
            _log.warning("%s; the server waits, and then starts", error)
            await trio.sleep(PAUSE)


async def open_once(file: ServerFile, deployment: Deployment, *, create: bool = True) -> Blobs:
    """The same without waiting.

    Raises:
        MisuseError: obstore is not installed, or an option is wrong.
        BlobsAwayError: the place cannot be reached now.
        DiskFullError: there is no room to make it.
        StorageError: it cannot be used.
    """
    owner, folder = blobs_owner(deployment, file.server), file.blobs_folder
    if file.blobs.url:
        return await _open_objects(file, owner, create)
    if folder is None:
        return MemoryBlobs()
    return await FolderBlobs.open(folder, owner, create=create)


async def refuse_others_bulk(blobs: Blobs, store: Store) -> None:
    """Refuse bulk of rounds that this store has not begun: another store wrote it, and a start would erase it.

    Raises:
        StorageError: there is some.
    """
    stored = await store.keys(PROGRESS)
    settled = decode_stored(await store.blob(PROGRESS), Progress, "the store's standing").settled if stored else 0
    begun = settled + await PastRounds(store).has_begun(settled + 1)
    numbers = [int(group.removeprefix("round-")) for group in await blobs.groups() if group.startswith("round-")]
    if numbers and max(numbers) > begun:
        raise StorageError(
            f"{blobs.usage().where} has bulk of round {max(numbers)}, and the last round that this store has begun is "
            f"{begun}: it is another store's bulk, which a start would erase. Put that store back; or put this bulk "
            "aside as well, and begin anew on both servers, as docs/operations.md says"
        )


def warn_of_missing(file: ServerFile) -> None:
    """Warn if a store has been used, and there is no folder of its bulk; asked before the store is opened."""
    folder = file.blobs_folder
    if folder is None or not isinstance(file.store, OnDisk):
        return
    if exists(mark_path(file.store.path)) and not exists(folder):
        _log.warning(
            "%s is made anew, and the store %s was there: if its disk is not mounted, stop the server and mount it",
            folder,
            file.store.path,
        )


async def _open_objects(file: ServerFile, owner: bytes, create: bool) -> Blobs:
    try:
        from parties.storage.blobs.objects import ObjectBlobs
    except ImportError as error:
        raise MisuseError(WITHOUT_OBJECTS) from error
    return await ObjectBlobs.open(file.blobs.url, owner, read_options(file.blobs.options), create=create)


def blobs_owner(deployment: Deployment, server: int) -> bytes:
    """Whose blobs they are: one line of text, the same for a server and its workers alone, and for one task."""
    key = deployment.identity(server).channel.hex()
    return f"S{server} {key} task {deployment.task.digest().hex()}\n".encode()


def read_options(path: Path | None) -> dict[str, str]:
    """What a file says of an object store.

    Raises:
        MisuseError: it cannot be read, others can read it, or it holds something else than texts.
    """
    if path is None:
        return {}
    table = read_toml(path)
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) and path.stat().st_uid == os.geteuid():
        raise MisuseError(f"{path} holds credentials and others can read it: `chmod 600 {path}`")
    for key, value in table.items():
        if not isinstance(value, str):
            raise MisuseError(f'{path}: {key} must be a text, such as {key} = "…"')
    return table
