"""The disk that files lie on: its room, its kind, one process per file, and files that appear complete.

A store is only as durable as its disk. What can be known beforehand is refused here, with what to do about it: a disk
that is nearly full, a file system on another host (where locks and memory maps do not hold for everybody, so that two
servers could write to one store), a second process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fsl_async.errors import StorageError

LEAST_FREE_PERCENT = 10
LEAST_FREE_BYTES = 4 << 30
"""No more than this must stay free, however large the disk is, for the log and for what others write meanwhile."""
MOUNTS = Path("/proc/self/mountinfo")

# fmt: off
NETWORK_FILE_SYSTEMS = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs",
    "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb2", "smb3", "smbfs", "vboxsf", "virtiofs", "wekafs",
    "fuse.ceph", "fuse.ceph-fuse", "fuse.cifs", "fuse.curlftpfs", "fuse.davfs2", "fuse.gcsfuse", "fuse.glusterfs",
    "fuse.grpcfuse", "fuse.httpdirfs", "fuse.juicefs", "fuse.mfs", "fuse.moosefs", "fuse.rclone", "fuse.s3fs",
    "fuse.smbnetfs", "fuse.sshfs", "fuse.vmhgfs-fuse",
})
# fmt: on

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The errors of a disk or a quota that has no room left."""

REMEDIES: Mapping[int, str] = {
    errno.ENOENT: "its folder does not exist; create it, owned by the user who runs this command, with mode 0700",
    errno.ENOTDIR: "what should be its folder is a file; name a file in a folder",
    errno.EISDIR: "it is a folder; name a file in it",
    errno.EACCES: "permission denied; the file and its folder must belong to the user who runs this command",
    errno.EPERM: "not permitted; the file and its folder must belong to the user who runs this command",
    errno.EROFS: "the file system is read-only; mount it for writing, or name a file on another one",
    errno.ENOSPC: "the disk is full; free some of it",
    errno.EDQUOT: "the quota is used up; free some of it, or raise it",
    errno.ENOLCK: "this file system has no locks; name a file on a local disk",
}


class InUseError(StorageError):
    """Another process has the file in use."""


def exists(path: Path) -> bool:
    """Whether there is such a file, or folder.

    Raises:
        StorageError: the system does not say, for instance because its folder is another user's.
    """
    try:
        return path.exists()
    except OSError as error:
        raise StorageError(f"{path} cannot be reached: {_remedy(error)}") from error


def room(path: Path) -> int:
    """Bytes that can still be written beside a file.

    Raises:
        StorageError: its folder cannot be read.
    """
    return _usage(path)[1]


def check_room(path: Path, needed: int) -> None:
    """Refuse if so many more bytes beside a file would leave less than a tenth of the disk, or 4 GiB, free.

    Raises:
        StorageError: they would, or its folder cannot be read.
    """
    total, free = _usage(path)
    least = min(total * LEAST_FREE_PERCENT // 100, LEAST_FREE_BYTES)
    if free - needed < least:
        raise StorageError(
            f"{path.parent} has {_megabytes(free)} free; {_megabytes(needed)} are needed, and {_megabytes(least)} "
            f"(a tenth of the disk, or 4 GiB) must stay free; free some of it, or name a file on a larger disk"
        )


def refuse_network(path: Path) -> None:
    """Refuse a file on another host's disk; where the system does not say what is mounted, nothing is refused.

    Raises:
        StorageError: the file is on another host's disk.
    """
    with suppress(FileNotFoundError):
        kind = file_system(MOUNTS.read_text(encoding="utf-8", errors="surrogateescape"), path)
        if kind in NETWORK_FILE_SYSTEMS:
            raise StorageError(
                f"{path} lies on a network file system ({kind}), where neither locks nor memory maps keep a second "
                "server out; name a file on a local disk"
            )


def file_system(mounts: str, path: Path) -> str:
    """The kind of file system that a path lies on, such as "ext4"; empty where nothing is mounted above it.

    Args:
        mounts: the text of `/proc/self/mountinfo` (proc(5)): the mount point is the fifth field, the kind the first
            one after " - ", and of mounts at one place the last one shows.
        path: absolute, without symbolic links.
    """
    found, depth = "", -1
    for line in mounts.splitlines():
        places, _, kinds = line.partition(" - ")
        point = Path(re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), places.split(" ")[4]))
        if path.is_relative_to(point) and len(point.parts) >= depth:
            found, depth = kinds.split(" ")[0], len(point.parts)
    return found


@contextmanager
def sole_use(path: Path) -> Iterator[None]:
    """Have a file in sole use; no other block, in this process or another, has it at the same time.

    The lock is on a file beside it, because SQLite's own locks on the file itself are lost as soon as anything in this
    process closes that file. The lock ends with the process, however that ends.

    Raises:
        InUseError: the file is in use.
        StorageError: it cannot be locked, or has a second name, for which there would be a second lock.
    """
    _refuse_second_name(path)
    with _lock_file(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUseError(
                f"{path} is in use by another server (process {_owner(descriptor)}); stop that one, or give this one "
                "a store of its own"
            ) from error
        except OSError as error:
            raise refused(path, error) from error
        with suppress(OSError):  # the number only helps to find the process; a full disk must not prevent the use
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield


def in_use(path: Path) -> bool:
    """Whether a process has a file in sole use now; no file is made for asking."""
    try:
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextmanager
def replaced_by(path: Path) -> Iterator[IO[bytes]]:
    """A new file (0600) that replaces a path once it is complete and on disk; after an error nothing of it stays.

    The caller may also write, or replace, the new file by its name.

    Raises:
        OSError: it cannot be written.
    """
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        new = Path(file.name)
        try:
            yield file
            file.flush()
            with new.open("rb") as named:
                os.fsync(named.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """Make a file's name as durable as its content.

    Raises:
        OSError: the disk failed.
    """
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refused(path: Path, error: OSError) -> StorageError:
    """The error for a file that the system refuses, with what to do about it."""
    return StorageError(f"{path} cannot be written: {_remedy(error)}")


def _remedy(error: OSError) -> str:
    return REMEDIES.get(error.errno or 0) or str(error.strerror)


def _refuse_second_name(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):  # removed at this moment
        names = path.stat().st_nlink if exists(path) else 0
        if path.is_file() and names > 1:
            raise StorageError(
                f"{path} is one of {names} names of the same file (hard links): by another name another process "
                f"could use it, with a log of its own. Remove the others (`find -samefile {path}` finds them)"
            )


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    try:
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise refused(path, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> str:
    return os.pread(descriptor, 20, 0).decode("ascii", errors="replace") or "unknown"


def _usage(path: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(path.parent)
    except OSError as error:
        raise refused(path, error) from error
    return usage.total, usage.free


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
