"""Copies of a folder of blobs, for `fsl-async backup` and `restore`.

A blob is never changed once it has its name, so a copy on the same disk is a second name of the same file. What is
erased while a copy is made is not in it; nor are blobs that are not durable, without which a server starts as well.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

from fsl_async.errors import StorageError
from parties.files.disk import refused, sync_folder
from parties.storage.blobs.folder import ERASED, OWNER, PASSING

PIECE_BYTES = 1 << 20


def copy_folder(source: Path, target: Path) -> int:
    """Bring the durable blobs of one folder into another, which may have some of them; how many bytes they have.

    Raises:
        StorageError: the other folder is another server's, or has other content under a name; or it cannot be written.
    """
    try:
        target.mkdir(mode=0o700, exist_ok=True)
        _take_owner(source / OWNER, target / OWNER)
        size = sum(_copy_group(group, target / group.name) for group in sorted(source.iterdir()) if _counts(group))
        sync_folder(target / OWNER)  # the names in it, and then its own
        sync_folder(target)
    except OSError as error:
        raise refused(target, error) from error
    return size


def _take_owner(file: Path, target: Path) -> None:
    """Let a folder belong to the same server; not by a second name of the same file, on which the servers' lock is.

    Raises:
        StorageError: it belongs to another one.
    """
    if not target.exists():
        _copy(file, target)
    if file.read_bytes() != target.read_bytes():
        raise StorageError(f"{target.parent} holds the blobs of another server, or of another task; put it aside first")


def _counts(group: Path) -> bool:
    return group.name != OWNER and not group.name.startswith(ERASED)


def _copy_group(group: Path, target: Path) -> int:
    """Copy what is below one part of the blobs' names, or a blob whose name has no other part."""
    if not group.is_dir():
        return 0 if group.name.endswith(PASSING) else _add(group, target)
    size = 0
    for folder, _, files in os.walk(group):
        into = target / Path(folder).relative_to(group)
        into.mkdir(mode=0o700, exist_ok=True)
        size += sum(_add(Path(folder, file), into / file) for file in files if not file.endswith(PASSING))
        sync_folder(into / OWNER)
    return size


def _add(file: Path, target: Path) -> int:
    """Give a file a second name, or copy it to another disk; one that is gone by now is not copied.

    Raises:
        StorageError: there is another one of that name.
    """
    try:
        os.link(file, target, follow_symlinks=False)
    except FileNotFoundError:
        return 0
    except FileExistsError:
        if not target.samefile(file) and file.stat().st_size != target.stat().st_size:
            raise StorageError(
                f"{target} is there already, with other content; put {target.parent} aside first"
            ) from None
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        _copy(file, target)
    return target.stat().st_size


def _copy(file: Path, target: Path) -> None:
    new = target.with_name(f"{target.name}{PASSING}")  # a server that starts erases what has been left of it
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with file.open("rb") as source, open(os.open(new, flags, 0o600), "wb") as copy:
        shutil.copyfileobj(source, copy, PIECE_BYTES)
        copy.flush()
        os.fsync(copy.fileno())
    new.replace(target)
