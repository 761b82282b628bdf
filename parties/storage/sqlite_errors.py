"""SQLite's errors, translated into ours: what happened, and what to do about it.

- A failing disk is distinguished from a damaged file: SQLite calls both "malformed" (a read that fails inside one of
  its trees), so the file is read once more. A store whose disk failed is whole, and the server resumes from it.
- A damaged file must never be replaced by an older copy: a server that answers a round twice can expose a client.
- Any other error (a limit of the system, a missing table) is reported with SQLite's name for it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fsl_async.errors import StorageError
from parties.files.disk import NO_ROOM, REMEDIES
from parties.storage.store import DAMAGED, DiskFullError, StoreLostError

PIECE_BYTES: Final = 1 << 20
TRIAL_BYTES: Final = 1 << 16

_OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translation(path, error) from error
    except UnicodeDecodeError as error:  # a damaged name, which is not text any more
        raise damaged(path, str(error)) from error


def damaged(path: Path, what: str) -> StoreLostError:
    """The error for a file that does not hold what was written."""
    return StoreLostError(f"{path} is damaged ({what}); {DAMAGED}")


def _translation(path: Path, error: sqlite3.Error) -> StorageError:
    """The error that a user meets; SQLite's extended result codes keep the family in their lowest byte."""
    code = getattr(error, "sqlite_errorcode", 0)  # the module's own errors have none
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:  # so it reports a disk without room for the index of the log
        code = sqlite3.SQLITE_FULL
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return DiskFullError(f"{path}: the disk is full, and nothing of this was stored; free some of it")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageError(f"{path}: another program uses it ({error}); close that program")
        case sqlite3.SQLITE_TOOBIG:
            return StorageError(f"{path}: a journal entry is too large ({error}); keep large data as a blob")
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT:
            return _not_read(path, code & 0xFF, error)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN:
            return _not_opened(path, error)
        case sqlite3.SQLITE_IOERR:
            # SQLite does not distinguish a used-up quota, which is treated as a full disk.
            if code == sqlite3.SQLITE_IOERR_WRITE and _write_trouble(path) in NO_ROOM:
                return DiskFullError(f"{path}: nothing of this was stored: {REMEDIES[errno.EDQUOT]}")
            return _disk_failed(path, f"{_name(error)}: {error}")
        case sqlite3.SQLITE_NOMEM:
            return StoreLostError(f"{path}: there is not enough memory ({error}); allow more, then start again")
        case _:
            return StoreLostError(
                f"{path}: SQLite refuses what is asked of it ({_name(error)}: {error}): the file was not made by this "
                "release, or this is an error of this program; find out which release wrote it, then start again"
            )


def _not_read(path: Path, code: int, error: sqlite3.Error) -> StorageError:
    """The error for a file that cannot be read: the disk failed, the file is not a store, or it is damaged."""
    trouble = _read_trouble(path)
    if trouble:
        return _disk_failed(path, trouble)
    if _is_sound(path):
        return _disk_failed(path, f"{_name(error)}: {error}; read once more, the file is whole")
    if code == sqlite3.SQLITE_NOTADB:
        return StoreLostError(f"{path} is not a store ({error}); name another file, or if it was one: {DAMAGED}")
    return damaged(path, str(error))


def _not_opened(path: Path, error: sqlite3.Error) -> StorageError:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as refusal:
        if refusal.errno in _OUT_OF_FILES:
            return StoreLostError(
                f"{path} cannot be opened: {refusal.strerror}; allow this process more of them (`ulimit -n`, "
                "LimitNOFILE), then start again"
            )
        if refusal.errno == errno.EIO:
            return _disk_failed(path, str(refusal))
    return StoreLostError(f"{path} cannot be written ({error}); check who owns it and how its disk is mounted")


def _disk_failed(path: Path, what: str) -> StoreLostError:
    return StoreLostError(
        f"{path}: the disk failed ({what}); check the disk (see the system's log), then start again: the store "
        "is not known to be damaged, and needs no other copy"
    )


def _read_trouble(path: Path) -> str:
    """Why a file or its log cannot be read from its beginning to its end; empty where it can."""
    try:
        for file in (path, path.with_name(f"{path.name}-wal")):
            if file.exists():
                with file.open("rb", buffering=0) as stream:
                    while stream.read(PIECE_BYTES):
                        pass
    except OSError as error:
        return str(error)
    return ""


def _is_sound(path: Path) -> bool:
    """Whether SQLite finds nothing wrong with a file after all."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as connection:
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return False
    return bool(tables) and found == "ok"


def _write_trouble(path: Path) -> int:
    """The number of the error that a small file beside this one meets; 0 where there is none."""
    try:
        with tempfile.TemporaryFile(dir=path.parent) as trial:
            trial.write(bytes(TRIAL_BYTES))
            trial.flush()
            os.fsync(trial.fileno())
    except OSError as error:
        return error.errno or 0
    return 0


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", type(error).__name__)
