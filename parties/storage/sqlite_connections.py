"""The two connections to a store's file: one writes, the other reads.

- A commit is a savepoint in a transaction: all or none by itself, and many become durable with one `fsync`.
- Blobs lie in chunks: neither SQLite's limit on one value nor copies of a whole blob matter.
- Names are stored as UTF-8, which sorts as the text does and never contains the byte FF: the names that begin with a
  prefix are those from the prefix up to the prefix followed by FF.
- Everything is stored with its digest, which is compared when it is read back: a disk may return other bytes than it
  was given, and one flipped bit of a share would make a wrong sum that nobody notices.
- A blob is erased by removing its name, so that even the largest round is erased at once, also on a full disk. Its
  bytes are overwritten, the log emptied and the room given back to the disk in portions, between other transactions;
  after a crash this continues.

Erasing is best effort: a disk or a file system that writes elsewhere (flash, snapshots, copy on write) may keep what
was there.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Final, TypeVar

import numpy as np

from fsl_async.digests import Buffer, Domain, digest
from fsl_async.errors import StorageError
from parties.files.disk import room
from parties.storage.mark import Mark, StoreAge
from parties.storage.sqlite_errors import damaged, translated
from parties.storage.sqlite_file import (
    BUSY_SECONDS,
    LOG_BYTES,
    PAGE_BYTES,
    PRESSING_LOG_BYTES,
    check_format,
    connect,
    life,
    log_bytes,
    prepare,
)
from parties.storage.store import (
    DAMAGED,
    Change,
    DiskFullError,
    Erase,
    Keep,
    Put,
    Record,
    StoreLostError,
    checked,
    encoded,
)

ContentT = TypeVar("ContentT", bytes, memoryview)

CHUNK_BYTES: Final = 4 << 20
PORTION_BYTES: Final = 8 << 20  # overwritten in one transaction
GIVEN_BACK: Final = 4  # times as many bytes are given back in one: most of them need not be written
LITTLE_BYTES: Final = 128 << 10  # a portion on a full disk
COMMIT_BYTES: Final = 1024  # what a commit costs beside its content, about
TRANSACTION_BYTES: Final = 4 * PAGE_BYTES
READER_SECONDS: Final = 0.1  # that a commit waits at most for who reads, where the log has to be moved before it
AGAIN_BYTES: Final = LOG_BYTES // 8  # by which a log that could not be moved grows before that is tried again

CHUNKS: Final = "SELECT data FROM chunk WHERE blob = ? ORDER BY number"
HELD: Final = "SELECT coalesce(sum(length(data)), 0) FROM chunk WHERE blob = ?"  # reads none of the data
ERASED_CHUNKS: Final = """
    SELECT chunk.rowid, blob.id, length(chunk.data)
    FROM blob JOIN chunk ON chunk.blob = blob.id WHERE key IS NULL LIMIT 512
"""
DELETE_EMPTY: Final = "DELETE FROM blob WHERE id = ? AND NOT EXISTS (SELECT * FROM chunk WHERE chunk.blob = blob.id)"


@dataclass(frozen=True)
class Commit:
    """Changes to make together; their names and data have been checked.

    Attributes:
        size: about how many bytes it adds to the log.
    """

    changes: tuple[Change, ...]
    size: int

    @staticmethod
    def of(changes: Sequence[Change]) -> Commit:
        """Changes whose names are text and whose data are plain bytes.

        Raises:
            MisuseError: a name is not text.
        """
        plain = tuple(checked(change) for change in changes)
        return Commit(plain, COMMIT_BYTES + sum(_size(change) for change in plain))

    @property
    def erases(self) -> bool:
        """Whether something is erased."""
        return any(isinstance(change, Erase) for change in self.changes)

    @property
    def adds(self) -> bool:
        """Whether something is added."""
        return not all(isinstance(change, Erase) for change in self.changes)


class WriteConnection:
    """The one connection that writes.

    Attributes:
        transactions: made so far.
        untidy: whether `tidy` has something to do: something was erased, or did not fit.
        life: which store it is, and how many transactions it holds.
    """

    def __init__(self, path: Path, *, marked: bool = False) -> None:
        """Open the file; if it is empty, create the tables in it.

        Args:
            path: the file.
            marked: whether a mark is kept beside it; see `parties.storage.mark`.

        Raises:
            StorageError: it is another program's, of another format, older than its mark, damaged or in use, or cannot
                be made durable.
        """
        self.path = path
        self.transactions = 0
        self.untidy = True  # a process before this one may have been killed while it was
        self._held_up = 0
        self._portion = PORTION_BYTES
        self._behind = False
        with ExitStack() as stack:
            self._connection = stack.enter_context(closing(connect(path)))
            prepare(self._connection, path)
            with translated(path):
                self.life = life(self._connection, path)
            self._mark = stack.enter_context(Mark.held(path, self.life)) if marked else None
            self._held = stack.pop_all()
        self._places = {file: _inode(file) for file in (path, path.with_name(f"{path.name}-wal"))}

    def transact(self, commits: Sequence[Commit]) -> dict[int, StorageError]:
        """Make commits, each all or none, durable together; returns those refused for their content, by place.

        Raises:
            StoreLostError: nobody knows whether they have been made.
            StorageError: none of them has been made.
        """
        try:
            self._refuse_without_room(commits)
            with translated(self.path):
                refusals = self._transact(commits)
            self._refuse_replaced()
            self._count()
        except DiskFullError:
            self.untidy = True  # what was written of them is in the log
            raise
        self.transactions += 1
        self.untidy |= self._behind or any(commit.erases for commit in commits)
        return refusals

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether the log is long enough to be moved into the file when there is time."""
        return self._is_as_long_as(LOG_BYTES)

    @property
    def checkpoint_is_pressing(self) -> bool:
        """Whether the log is so long that commits must wait for the checkpoint."""
        return self._is_as_long_as(PRESSING_LOG_BYTES)

    def _is_as_long_as(self, size: int) -> bool:
        """Whether the log is so long; after it could not be moved, it grows a little before that is tried again."""
        logged = log_bytes(self.path)
        return logged >= size and (not self._held_up or logged >= self._held_up + AGAIN_BYTES)

    def checkpoint(self) -> None:
        """Move the log into the file and empty it, as far as no reader needs it for longer than a moment.

        Raises:
            StorageError: the disk failed or is full.
        """
        self._move_log(READER_SECONDS)

    def tidy(self) -> None:
        """Empty the log, and overwrite or give back a part of what was erased; untidy until all of it is.

        Where the disk is too full even for that, smaller parts are tried; the rest waits until the next commit.

        Raises:
            StorageError: the disk failed or is full.
        """
        self.untidy, self._behind = False, True
        held_up = self._move_log()
        try:
            with translated(self.path):
                self.untidy = self._overwrite() or self._give_back()
        except DiskFullError:
            if self._portion == LITTLE_BYTES:
                raise
            self._portion, self.untidy = LITTLE_BYTES, True
        if not self.untidy:
            self._portion, self._behind = PORTION_BYTES, held_up

    def close(self) -> None:
        """Move the log into the file and close it."""
        with translated(self.path):
            self._held.close()

    def _count(self) -> None:
        """Count a durable transaction in the mark, before anybody is told of it."""
        self.life = replace(self.life, transactions=self.life.transactions + 1)
        if self._mark is not None:
            self._mark.set(self.life)

    def _refuse_without_room(self, commits: Sequence[Commit]) -> None:
        """Keep room to move the log into the file: without it a full disk would stay full, whatever is erased."""
        adding = TRANSACTION_BYTES + sum(commit.size for commit in commits if commit.adds)
        if room(self.path) >= log_bytes(self.path) + 2 * adding or not any(commit.adds for commit in commits):
            return
        self._move_log()
        if room(self.path) < 2 * adding:
            raise DiskFullError(
                f"{self.path}: the disk is full, and nothing of this was stored; free {2 * adding / 1e6:,.1f} MB of it"
            )

    def _refuse_replaced(self) -> None:
        """Notice that the file or its log was removed: SQLite would go on writing to a file that nobody can find.

        Raises:
            StoreLostError: one has.
        """
        for file, place in self._places.items():
            if _inode(file) != place:
                raise StoreLostError(
                    f"{file} was removed or replaced while the store was in use; put the same file back, then {DAMAGED}"
                )

    def _transact(self, commits: Sequence[Commit]) -> dict[int, StorageError]:
        refusals: dict[int, StorageError] = {}
        with self._transaction():
            for place, commit in enumerate(commits):
                try:
                    self._make(commit)
                except StorageError as error:
                    refusals[place] = error
            self._connection.execute("UPDATE life SET transactions = transactions + 1")
        return refusals

    def _overwrite(self) -> bool:
        """Delete some chunks of erased blobs, and the blobs that have none left; whether there were any."""
        chunks = self._connection.execute(ERASED_CHUNKS).fetchall()
        sizes = accumulate(size for _, _, size in chunks)
        chosen = [chunk for chunk, size in zip(chunks, sizes, strict=True) if size <= self._portion] or chunks[:1]
        with self._transaction():
            self._connection.executemany("DELETE FROM chunk WHERE rowid = ?", [(row,) for row, _, _ in chosen])
            self._connection.executemany(DELETE_EMPTY, {(blob,) for _, blob, _ in chosen})
        return bool(chosen)

    def _give_back(self) -> bool:
        """Make the file shorter by some unused pages; whether there were any."""
        (unused,) = self._connection.execute("PRAGMA freelist_count").fetchone()
        if unused:  # not with `execute`, which stops after one page, as it gets rows without columns
            self._connection.executescript(f"PRAGMA incremental_vacuum({GIVEN_BACK * self._portion // PAGE_BYTES})")
        return bool(unused)

    def _make(self, commit: Commit) -> None:
        self._connection.execute("SAVEPOINT one")
        try:
            for change in commit.changes:
                self._change(change)
        except StorageError:
            self._connection.execute("ROLLBACK TO one")
            self._connection.execute("RELEASE one")
            raise
        self._connection.execute("RELEASE one")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:  # it has failed, and SQLite has not ended it
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    def _change(self, change: Change) -> None:
        match change:
            case Record(journal=journal, entry=entry):
                row = (journal.encode(), entry, _digest(journal, entry))
                self._connection.execute("INSERT INTO journal (name, entry, digest) VALUES (?, ?, ?)", row)
            case Keep(key=key, data=data):
                self._keep(key, memoryview(data))
            case Put(key=key, data=data):
                self._replace(key, memoryview(data))
            case Erase(prefix=prefix):
                self._connection.execute("DELETE FROM journal WHERE name >= ? AND name < ?", _range(prefix))
                self._connection.execute("DELETE FROM blob WHERE key >= ? AND key < ? AND size = 0", _range(prefix))
                self._connection.execute("UPDATE blob SET key = NULL WHERE key >= ? AND key < ?", _range(prefix))

    def _keep(self, key: str, data: memoryview) -> None:
        found = self._connection.execute("SELECT digest FROM blob WHERE key = ?", (key.encode(),)).fetchall()
        if not found:
            self._insert(key, data)
        elif found != [(_digest(key, data),)]:
            raise StorageError(f"{key} is stored already, with other content")

    def _replace(self, key: str, data: memoryview) -> None:
        one = (key.encode(),)
        self._connection.execute("DELETE FROM chunk WHERE blob IN (SELECT id FROM blob WHERE key = ?)", one)
        self._connection.execute("DELETE FROM blob WHERE key = ?", one)
        self._insert(key, data)

    def _insert(self, key: str, data: memoryview) -> None:
        row = (key.encode(), len(data), _digest(key, data))
        blob = self._connection.execute("INSERT INTO blob (key, size, digest) VALUES (?, ?, ?)", row).lastrowid
        for number, start in enumerate(range(0, len(data), CHUNK_BYTES)):
            chunk = data[start : start + CHUNK_BYTES]
            self._connection.execute("INSERT INTO chunk (blob, number, data) VALUES (?, ?, ?)", (blob, number, chunk))

    def _move_log(self, patience: float = 0.0) -> bool:
        """Move the log into the file and empty it; whether readers, awaited for so many seconds, held up a part of it.

        Who begins to read once all of it is moved needs none of it, so that nobody is awaited but who is reading now.
        """
        self._held_up = log_bytes(self.path)
        with translated(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}").fetchall()
            try:
                (held_up, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}").fetchall()
        if not held_up:
            self._held_up = 0
        return bool(held_up)


class ReadConnection:
    """The connection that reads; it sees every commit that was made before the call."""

    def __init__(self, path: Path) -> None:
        """Open an existing store, or a copy of one.

        Raises:
            StorageError: it is neither, or of another format.
        """
        self.path = path
        with ExitStack() as stack:
            self._connection = stack.enter_context(closing(connect(path)))
            with translated(path):
                self._connection.execute("PRAGMA query_only = ON")
                check_format(self._connection, path)
            self._held = stack.pop_all()

    def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        query = "SELECT entry, digest FROM journal WHERE name = ? ORDER BY place"
        with translated(self.path):
            found = self._connection.execute(query, (encoded(journal),)).fetchall()
            return [self._as_written(journal, _bytes(entry, self.path), name) for entry, name in found]

    def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        query = "SELECT key FROM blob WHERE key >= ? AND key < ? ORDER BY key"
        with translated(self.path):
            found = self._connection.execute(query, _range(prefix)).fetchall()
            return [_bytes(key, self.path).decode() for (key,) in found]

    def blob(self, key: str) -> memoryview:
        """See `Store.blob`; takes memory for the blob and one chunk."""
        with translated(self.path), self._snapshot():
            query = "SELECT id, size, digest FROM blob WHERE key = ?"
            found = self._connection.execute(query, (encoded(key),)).fetchall()
            if not found:
                raise StorageError(f"{key} is not stored")
            blob, size, name = found[0]
            (held,) = self._connection.execute(HELD, (blob,)).fetchone()
            if size != held:  # before there is room for it
                raise damaged(self.path, f"{key} of {size!r} bytes has {held!r}")
            buffer, place = np.empty(size, np.uint8), 0
            for (chunk,) in self._connection.execute(CHUNKS, (blob,)):
                data = np.frombuffer(_bytes(chunk, self.path), np.uint8)
                buffer[place : place + len(data)] = data
                place += len(data)
            return self._as_written(key, buffer.data.toreadonly(), name)

    def life(self) -> StoreAge:
        """Which store it is, and how many transactions it holds."""
        with translated(self.path):
            return life(self._connection, self.path)

    def close(self) -> None:
        """Close the file."""
        self._held.close()

    def _as_written(self, name: str, data: ContentT, written: object) -> ContentT:
        """Content, if it is what was written under its name.

        Raises:
            StoreLostError: it is not.
        """
        if _digest(name, data) != written:
            raise damaged(self.path, f"{name} is not what was written: its digest is another one")
        return data

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """One state of the file for several queries."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("COMMIT")


def _inode(file: Path) -> tuple[int, int]:
    """The device and inode of a file; zeros where there is none."""
    try:
        found = file.stat()
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _digest(name: str, data: Buffer) -> bytes:
    """The digest that is stored beside content; it includes the name, so that no content passes for another's."""
    return digest(Domain.STORED, name.encode(), data)


def _size(change: Change) -> int:
    match change:
        case Record(entry=entry):
            return len(entry)
        case Keep(data=data) | Put(data=data):
            return len(data)
        case Erase():
            return 0


def _bytes(content: object, path: Path) -> bytes:
    """The content of a column, which is bytes wherever we have written it."""
    if not isinstance(content, bytes):
        raise damaged(path, f"{type(content).__name__} where bytes were written")
    return content


def _range(prefix: str) -> tuple[bytes, bytes]:
    """From the first name that begins with a prefix up to, not including, the second; see the module."""
    return encoded(prefix), encoded(prefix) + b"\xff"
