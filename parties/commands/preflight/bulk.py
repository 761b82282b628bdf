"""What `preflight` says of the place where a server's bulk lies."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from fsl_async.errors import StorageError
from parties.commands.preflight.findings import Doubt
from parties.deployment.blobs import open_once
from parties.files.disk import MOUNTS, exists, file_system, refuse_network
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from parties.settings.task_file import Deployment

PASSING: Final = {"tmpfs", "ramfs"}
"""File systems in memory, which lose everything with their host."""


async def blobs(file: ServerFile, deployment: Deployment, *, running: bool) -> str:
    """The place of bulk can be used, and keeps what it takes.

    Args:
        file: the server's own file.
        deployment: the task file.
        running: whether the server runs, which has the place in use then.

    Raises:
        Doubt: it is in memory, in use, or about to be made anew for a store that is not new.
        StorageError: it cannot be used.
    """
    folder = file.blobs_folder
    if folder is None and not file.blobs.url:
        return "in memory, as the store is"
    where = file.blobs.url or str(folder)
    if running:
        raise Doubt(f"{where} is in use: the server is running")
    if folder is not None:
        _check_disk(folder.absolute())
        if not exists(folder):
            return _about_to_be_made(folder, file)
    await (await open_once(file, deployment)).aclose()
    return f"{where} can be written, gives back what it has taken, and belongs to S{file.server}"


def _check_disk(folder: Path) -> None:
    """Look at the disk that a folder lies on.

    Raises:
        Doubt: it is in memory.
        StorageError: it is another host's.
    """
    refuse_network(folder)
    if MOUNTS.exists():
        kind = file_system(MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"), folder)
        if kind in PASSING:
            raise Doubt(f"{folder} lies in memory ({kind}), and is gone when its host goes down; name one on a disk")


def _about_to_be_made(folder: Path, file: ServerFile) -> str:
    if not os.access(folder.absolute().parent, os.W_OK | os.X_OK):
        raise StorageError(f"{folder} cannot be made: the folder above it is missing or not writable")
    if isinstance(file.store, OnDisk) and exists(file.store.path):
        raise Doubt(
            f"{folder} is not there, and the store {file.store.path} is: if its disk is not mounted, mount it before "
            "the server starts; otherwise it is made anew"
        )
    return f"{folder} is made when the server starts"
