"""The file of a store: how it is created, opened, brought up to date and refused.

- The write-ahead log is synced at every transaction (`synchronous=FULL`), deleted content is overwritten
  (`secure_delete=ON`). Both are read back, because SQLite ignores what it cannot do.
- Checkpoints (from the log into the file) never happen by themselves: whoever writes makes them between transactions,
  and while nobody waits as far as the log's length allows it, so that their errors are seen and commits are quick.
- The file, its log and the log's index are for their owner alone.
- A file of another program, or one that a newer version wrote, is left as it is.
- A copy made for backup says in its header that it is one, and is not opened as a store: see
  `parties.deployment.restore`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fsl_async.errors import StorageError
from parties.files.disk import refused, replaced_by, sync_folder
from parties.storage.mark import Life
from parties.storage.sqlite_errors import damaged, translated

__all__ = [
    "APPLICATION",
    "BUSY_SECONDS",
    "COPY",
    "LOG_BYTES",
    "LONGEST_LOG_BYTES",
    "PAGE_BYTES",
    "connect",
    "copy",
    "create",
    "insist",
    "life",
    "prepare",
]

APPLICATION: Final = 0x46534C41  # "FSLA"
COPY: Final = 0x46534C42  # "FSLB": a copy of a store
PAGE_BYTES: Final = 16384  # measured: large blobs take three quarters of the time of 8,192, small commits little more
LOG_BYTES: Final = 16 << 20  # after so much a checkpoint is due, once nobody has written for a while
LONGEST_LOG_BYTES: Final = 512 << 20  # after so much it does not wait for that
BUSY_SECONDS: Final = 5.0
COPIED_PAGES: Final = 1024
"""At a time."""

SETTINGS: Final[Mapping[str, str | int]] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL
    "secure_delete": 1,  # ON
    "wal_autocheckpoint": 0,
    "journal_size_limit": 4 * LOG_BYTES,  # of a log that had to become longer
}

MIGRATIONS: Final = (
    """
    CREATE TABLE journal (place INTEGER PRIMARY KEY, name BLOB NOT NULL, entry BLOB NOT NULL, digest BLOB NOT NULL);
    CREATE INDEX journal_by_name ON journal (name);
    CREATE TABLE kept (id INTEGER PRIMARY KEY, key BLOB UNIQUE, size INTEGER NOT NULL, digest BLOB NOT NULL);
    CREATE TABLE chunk (kept INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (kept, number));
    CREATE TABLE life (identity BLOB NOT NULL, transactions INTEGER NOT NULL);
    INSERT INTO life VALUES (randomblob(16), 0);
    """,
)
SCHEMA: Final = len(MIGRATIONS)


def create(path: Path) -> None:
    """Create an empty file for a store, unless there is one that can be written; durable, and for its owner alone.

    Raises:
        StorageError: it cannot be created, or written.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.close(descriptor)
        sync_folder(path)
    except OSError as error:
        raise refused(path, error) from error


def connect(path: Path) -> sqlite3.Connection:
    """A connection that begins no transaction by itself, for one thread at a time.

    Raises:
        StorageError: there cannot be one.
    """
    with translated(path):
        return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Make a file ours if it is empty, bring it to today's schema, and make what is written to it durable and private.

    Raises:
        StorageError: it is another program's, newer, damaged or in use, or cannot be made so.
    """
    with translated(path):
        version = _version(connection, path)
        if version == 0:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for setting, value in SETTINGS.items():
            insist(connection, setting, value)
        _make_private(path)
        for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
            connection.executescript(
                f"BEGIN; {script} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {number}; COMMIT;"
            )
        _check_names(connection, path)


def life(connection: sqlite3.Connection) -> Life:
    """Which store a file is, and how far it has got."""
    identity, transactions = connection.execute("SELECT identity, transactions FROM life").fetchone()
    return Life(identity, transactions)


def insist(connection: sqlite3.Connection, setting: str, value: str | int) -> None:
    """Set something and read it back.

    Raises:
        StorageError: it did not take.
    """
    connection.execute(f"PRAGMA {setting} = {value}").fetchall()
    (now,) = connection.execute(f"PRAGMA {setting}").fetchone()
    if now != value:
        raise StorageError(f"SQLite cannot keep this file as it must: {setting} is {now} where {value} was asked for")


def copy(path: Path, target: Path) -> None:
    """Copy a store as it is at this moment into a new file, whole and checked, or not at all.

    Nobody need stop: a server that uses the store, in this process or another, goes on writing meanwhile.

    Raises:
        StorageError: there is no store, or it is damaged; there is such a file already, or it cannot be written.
    """
    log = target.with_name(f"{target.name}-wal")
    for file in (target, log):
        if file.exists():
            raise StorageError(f"{file} exists already, and is not overwritten; name a new file")
    try:
        with _existing(path) as source, replaced_by(target) as new, translated(target):
            _back_up(source, path, Path(new.name))
    except OSError as error:
        raise refused(target, error) from error


@contextmanager
def _existing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a store that is there already, whoever else uses it.

    Raises:
        StorageError: there is none, or what is there is no store of ours.
    """
    if not path.is_file():
        raise StorageError(f"{path} is not there; name the store of a server, or start the server once")
    place = f"file:{quote(str(path.absolute()))}?mode=rw"  # not created, if it goes at this moment
    with translated(path):
        connection = sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    with closing(connection):
        with translated(path):
            if _version(connection, path) == 0:
                raise StorageError(f"{path} holds no store; name the store of a server, or start the server once")
        yield connection


def _back_up(source: sqlite3.Connection, path: Path, target: Path) -> None:
    """Copy one state of the store, however much is written meanwhile, and read the copy through.

    It is copied bit by bit, so that a signal is heard on the way.

    Raises:
        StoreLostError: what was copied is damaged.
    """
    source.execute("BEGIN")
    source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on it reads this one state
    with closing(connect(target)) as copied:
        source.backup(copied, pages=COPIED_PAGES, progress=lambda *_: None)
        copied.execute(f"PRAGMA application_id = {COPY}")
        (found,) = copied.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, found)


def _check_names(connection: sqlite3.Connection, path: Path) -> None:
    """Read through what is found by its name: a name that is not found any more would be as if it had never been.

    What lies under the names is compared with its digest when it is read.

    Raises:
        StoreLostError: something is missing, or not where it belongs.
    """
    for table in ("journal", "kept"):
        (found,) = connection.execute(f"PRAGMA integrity_check({table})").fetchone()
        if found != "ok":  # of what is found by its name
            raise damaged(path, found)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema that a file has; 0 where it is empty.

    Raises:
        StorageError: it is not ours, or newer.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == COPY:
        raise StorageError(
            f"{path} is a copy made by `fsl-async backup`, and no server is started from it as it is: it could answer "
            "a round a second time; `fsl-async restore` makes a store of it, and says when it must not"
        )
    if application != APPLICATION and (application or version or tables):
        raise StorageError(f"{path} is a database of another program; name another file")
    if version > SCHEMA:
        raise StorageError(
            f"{path} was written by a newer version of fsl-async (schema {version}, this one knows {SCHEMA}); "
            "run that version"
        )
    return int(version)


def _make_private(path: Path) -> None:
    for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        try:
            with suppress(FileNotFoundError):
                file.chmod(0o600)
        except OSError as error:
            raise refused(file, error) from error
