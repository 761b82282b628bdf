"""Whose folder of blobs it is, and who has it in use."""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from fsl_async.errors import StorageError
from parties.files.disk import InUseError, sync_folder

__all__ = ["OWNER", "check_owner", "check_private", "size_below", "sole"]

OWNER = ".owner"
UNFINISHED = f"{OWNER}-"
"""How what a crash may leave of the owner's file begins; it lies in the folder, which may be a disk of its own."""


def check_private(folder: Path) -> None:
    """Check that nobody else can read a folder.

    Raises:
        StorageError: it is another user's, or others can.
    """
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise StorageError(
            f"{folder} must belong to the user who runs this command, and to nobody else: `chmod 700 {folder}`"
        )


def check_owner(folder: Path, owner: bytes, create: bool) -> None:
    """Compare whose blobs they are; a new folder gets its owner's name before anything else.

    Raises:
        StorageError: they are another server's, or something else lies in the folder.
    """
    path = folder / OWNER
    if create and not path.exists():
        others = [other.name for other in folder.iterdir() if not other.name.startswith(UNFINISHED)]
        if others:
            raise StorageError(f"{folder} has {others[0]!r} in it and no owner; name a folder of its own for blobs")
        with tempfile.NamedTemporaryFile(dir=folder, prefix=UNFINISHED, delete=False) as file:
            file.write(owner)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(file.name, path)  # another process may have been quicker
            except FileExistsError:
                pass
            finally:
                os.unlink(file.name)
        sync_folder(path)
        sync_folder(folder)
    if path.read_bytes() != owner:
        raise StorageError(
            f"{folder} holds the blobs of another server, or of another task; give every server a folder of its own"
        )


def sole(folder: Path) -> int:
    """The lock of a folder, held until it is closed or the process ends.

    Raises:
        InUseError: another process has it.
    """
    lock = os.open(folder / OWNER, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(lock)
        raise InUseError(f"{folder} is in use by another process of the same server; stop that one first") from error
    return lock


def size_below(folder: Path) -> int:
    """Bytes of all files below a folder; what is erased meanwhile does not count."""
    size = 0
    for above, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):
                size += os.lstat(Path(above, file)).st_size
    return size
