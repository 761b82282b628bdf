"""The file of a store: how it is created, opened, copied and refused.

- The write-ahead log is synced at every transaction (`synchronous=FULL`), deleted content is overwritten
  (`secure_delete=ON`). Both are read back, because SQLite ignores what it cannot do.
- SQLite makes no checkpoints (from the log into the file) by itself: the writer makes them between transactions, and,
  unless the log is too long, only while no commit waits. So their errors are seen and commits are quick.
- Only their owner can read the file, its log and the log's index.
- A file of another program, or of another format, is not changed.
- The header of a backup marks it as a copy, which is not opened as a store: see
  `parties.deployment.backup`.
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
from parties.files.disk import exists, refused, replaced_by, sync_folder
from parties.storage.mark import StoreAge
from parties.storage.sqlite_errors import damaged, translated

APPLICATION: Final = 0x46534C41  # "FSLA"
COPY: Final = 0x46534C42  # "FSLB": a copy of a store
PAGE_BYTES: Final = 16384  # measured: large blobs take three quarters of the time of 8,192, small commits little more
LOG_BYTES: Final = 16 << 20  # after so much a checkpoint is due, once nobody has written for a while
PRESSING_LOG_BYTES: Final = LOG_BYTES * 3 // 2  # after so much it does not wait for that
LONGEST_LOG_BYTES: Final = 2 * LOG_BYTES
"""No longer than this, but for one commit that is larger by itself, and while another process copies the store."""
BUSY_SECONDS: Final = 5.0
CACHE_KIB: Final = 512
"""Memory for pages that each connection keeps: the system has them as well, and a server's would grow for hours."""
IDENTITY_BYTES: Final = 16
COPIED_PAGES: Final = 1024
"""Copied at a time."""

SETTINGS: Final[Mapping[str, str | int]] = {
    "journal_mode": "wal",
    "synchronous": 2,  # FULL
    "secure_delete": 1,  # ON
    "wal_autocheckpoint": 0,
    "journal_size_limit": LONGEST_LOG_BYTES,  # of a log that had to become longer
}

FORMAT: Final = 6
"""Of the tables below and of what parties write into them; each change of either gets the next number."""

TABLES: Final = """
    CREATE TABLE journal (place INTEGER PRIMARY KEY, name BLOB NOT NULL, entry BLOB NOT NULL, digest BLOB NOT NULL);
    CREATE INDEX journal_by_name ON journal (name);
    CREATE TABLE blob (id INTEGER PRIMARY KEY, key BLOB UNIQUE, size INTEGER NOT NULL, digest BLOB NOT NULL);
    CREATE TABLE chunk (blob INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (blob, number));
    CREATE TABLE life (identity BLOB NOT NULL, transactions INTEGER NOT NULL);
    INSERT INTO life VALUES (randomblob(16), 0);
"""


def create(path: Path) -> None:
    """Create an empty file for a store, if there is none; durable, and readable by its owner only.

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
    """Open a connection in autocommit mode; one thread may use it at a time.

    Raises:
        StorageError: the file cannot be opened.
    """
    with translated(path):
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        return connection


def prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables of an empty file, and make what is written to it durable and private.

    Raises:
        StorageError: it is another program's, of another format, damaged or in use, or cannot be made so.
    """
    with translated(path):
        is_new = _is_empty(connection, path)
        if is_new:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        for setting, value in SETTINGS.items():
            insist(connection, setting, value)
        for file in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            try:
                with suppress(FileNotFoundError):
                    file.chmod(0o600)
            except OSError as error:
                raise refused(file, error) from error
        if is_new:
            connection.executescript(
                f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {FORMAT}; COMMIT;"
            )
        _check_names(connection, path)


def life(connection: sqlite3.Connection, path: Path) -> StoreAge:
    """Which store a file is, and how many transactions it holds.

    Raises:
        StoreLostError: it does not say so any more.
    """
    match connection.execute("SELECT identity, transactions FROM life").fetchone():
        case (bytes(identity), int(transactions)) if len(identity) == IDENTITY_BYTES and transactions >= 0:
            return StoreAge(identity, transactions)
    raise damaged(path, "it does not say which store it is")


def log_bytes(path: Path) -> int:
    """How long a store's log is; what is written to it are whole pages, many times what a small commit holds."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        return 0


def insist(connection: sqlite3.Connection, setting: str, value: str | int) -> None:
    """Change a setting and read it back.

    Raises:
        StorageError: SQLite did not change it.
    """
    connection.execute(f"PRAGMA {setting} = {value}").fetchall()
    (now,) = connection.execute(f"PRAGMA {setting}").fetchone()
    if now != value:
        raise StorageError(
            f"SQLite does not support a setting that this store needs: {setting} is {now} instead of {value}"
        )


def copy(path: Path, target: Path) -> None:
    """Copy a store as it is at this moment into a new file, whole and checked, or not at all.

    A server that uses the store, in this process or another, can go on writing meanwhile.

    Raises:
        StorageError: there is no store, or it is damaged; there is such a file already, or it cannot be written.
    """
    log = target.with_name(f"{target.name}-wal")
    for file in (target, log):
        if exists(file):
            raise StorageError(f"{file} exists already, and is not overwritten; name a new file")
    try:
        with _existing(path) as source, replaced_by(target) as new, translated(target):
            _back_up(source, path, Path(new.name))
    except OSError as error:
        raise refused(target, error) from error


@contextmanager
def _existing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to an existing store, which may be in use.

    Raises:
        StorageError: there is no file, or it is not a store.
    """
    if not exists(path) or not path.is_file():
        what = "is not a file" if exists(path) else "is not there"
        raise StorageError(f"{path} {what}; name the store of a server, or start the server once")
    place = f"file:{quote(str(path.absolute()))}?mode=rw"  # if it is removed at this moment, no file is created
    with translated(path):
        connection = sqlite3.connect(place, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    with closing(connection):
        with translated(path):
            if _is_empty(connection, path):
                raise StorageError(f"{path} holds no store; name the store of a server, or start the server once")
        yield connection


def _back_up(source: sqlite3.Connection, path: Path, target: Path) -> None:
    """Copy one state of the store, whatever is written meanwhile, and check the copy.

    It is copied in portions, so that a signal can interrupt it.

    Raises:
        StoreLostError: what was copied is damaged.
    """
    source.execute("BEGIN")
    source.execute("SELECT count(*) FROM sqlite_master").fetchone()  # from here on the connection reads this state
    with closing(connect(target)) as copied:
        source.backup(copied, pages=COPIED_PAGES, progress=lambda *_: None)
        copied.execute(f"PRAGMA application_id = {COPY}")
        (found,) = copied.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise damaged(path, found)


def _check_names(connection: sqlite3.Connection, path: Path) -> None:
    """Check the tables and indices by which names are found: a name that is lost would look as if it had never been.

    The content is compared with its digest when it is read.

    Raises:
        StoreLostError: something is missing, or not where it belongs.
    """
    for table in ("journal", "blob"):
        (found,) = connection.execute(f"PRAGMA integrity_check({table})").fetchone()
        if found != "ok":
            raise damaged(path, found)


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is neither a store nor a copy of one, or whose format this release does not have.

    Raises:
        StorageError: it is such a file.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application not in (APPLICATION, COPY):
        raise StorageError(f"{path} is not a store of fsl-async; name another file")
    if version != FORMAT:
        raise StorageError(
            f"{path} is a store of format {version}, and this release has format {FORMAT}: another release wrote it. "
            "Run that release; or put the file aside and begin anew: a client once it has the outcome of what it sent, "
            "servers both together, as docs/operations.md says"
        )


def _is_empty(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether nothing has been written to a file yet.

    Raises:
        StorageError: something has, and it is not a store of this format.
    """
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application == COPY:
        raise StorageError(
            f"{path} is a copy made by `fsl-async backup`, and no server starts from it as it is, because it could "
            "answer a round a second time; `fsl-async restore` makes a store from it where that is safe"
        )
    if not (application or version or tables):
        return True
    if application != APPLICATION:
        raise StorageError(f"{path} is a database of another program; name another file")
    check_format(connection, path)
    return False
