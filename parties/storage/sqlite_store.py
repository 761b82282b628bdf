"""A store in a file, which outlives its process.

- What is acknowledged is durable: `commit` returns once it is on the disk, and cannot be cancelled while it waits for
  that.
- One thread writes. All commits that wait when it is free go into one transaction (group commit), in order of arrival;
  each commit is all or none by itself, and one that is refused does not affect the others.
- Reads have a connection of their own and wait for no `fsync`.
- When nobody has written for some seconds, the log is moved into the file and what was erased is overwritten. Neither
  is put off without end, nor where the disk is full.
- An error of the disk ends all writing: after a failed `fsync` nobody knows what the disk holds, so it is not tried
  again. A full disk refuses the commits that do not fit, and only those.
- A store has one owner (see `parties.files.disk`), and lies on a local disk.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import accumulate, islice, takewhile
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import trio

from fsl_async.errors import StorageError
from parties.docstrings import documented_by
from parties.files.disk import check_room, refuse_network, sole_use
from parties.storage.mark import refuse_missing
from parties.storage.sqlite_connections import Commit, ReadConnection, WriteConnection
from parties.storage.sqlite_file import copy, create
from parties.storage.store import Change, DiskFullError, Store, StoreLostError
from transport.needs_trio import NeedsTrio

ResultT = TypeVar("ResultT")

BATCH_BYTES: Final = 8 << 20  # in one transaction; a larger commit has a transaction of its own
REST_SECONDS: Final = 2.0  # without a commit; then the log is moved and what was erased is overwritten
OVERDUE_SECONDS: Final = 30.0  # without such a rest; then what was erased is overwritten nevertheless
TIDY_EVERY: Final = 16  # transactions, while commits always wait


@documented_by(Store)
class SqliteStore(Store):
    """A store in an SQLite file.

    `open` makes one, and the caller closes it; one process has a file at a time:

        store = await SqliteStore.open(Path("server.sqlite"))
        try:
            ...
        finally:
            await store.aclose()
    """

    def __init__(self, path: Path, writer: Writer, reading: ReadConnection, held: ExitStack) -> None:
        self._path = path
        self._writer = writer
        self._reading = reading
        self._held = held
        self._turn = trio.CapacityLimiter(1)
        self._closed = False

    @classmethod
    async def open(cls, path: Path, *, marked: bool = False) -> SqliteStore:
        """Open a store, which the caller closes; the file is created if there is none.

        Args:
            path: the file.
            marked: whether a mark is kept beside it, so that an older copy in its place is noticed; see
                `parties.storage.mark`.

        Raises:
            StorageError: the file is in use, on another host's disk, read-only, damaged, another program's or a newer
                version's, a copy or older than its mark, or it or its folder is missing.
        """
        NeedsTrio("SqliteStore.open").require_trio()
        return await trio.to_thread.run_sync(cls._opened, path, marked)

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`; once it waits for the disk, it is not cancelled.

        Raises:
            MisuseError: a name is not text.
            StorageError: it could not be stored: `DiskFullError` where there is no room, `StoreLostError` where nothing
                more can be stored; nothing has changed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        request = self._writer.submit(Commit.of(changes))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        if request.refusal is not None:
            raise request.refusal

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        return await self._read(lambda: self._reading.entries(journal))

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`; read-only."""
        return await self._read(lambda: self._reading.blob(key))

    async def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        return await self._read(lambda: self._reading.keys(prefix))

    async def snapshot(self, path: Path) -> None:
        """Copy the store while it is in use; see the function `snapshot`."""
        self._refuse_closed()
        await snapshot(self._path, path)

    async def check_room(self, needed: int) -> None:
        """See `Store.check_room`; a tenth of the disk must stay free, or 4 GiB."""
        await trio.to_thread.run_sync(check_room, self._path, needed)

    async def aclose(self) -> None:
        """Make durable what waits, then release the file."""
        if not self._closed:
            self._closed = True
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._close, limiter=self._turn)

    @property
    def transactions(self) -> int:
        """How many transactions have been made; one may hold many commits."""
        return self._writer.transactions

    @classmethod
    def _opened(cls, path: Path, marked: bool) -> SqliteStore:
        path = Path(os.path.realpath(path))
        refuse_network(path)
        with ExitStack() as held:
            held.enter_context(sole_use(path))
            if marked:
                refuse_missing(path)
            create(path)
            writing = WriteConnection(path, marked=marked)
            held.callback(writing.close)
            reading = ReadConnection(path)
            held.callback(reading.close)
            return cls(path, Writer(writing), reading, held.pop_all())

    async def _read(self, query: Callable[[], ResultT]) -> ResultT:
        def unless_closed() -> ResultT:
            self._refuse_closed()
            return query()

        return await trio.to_thread.run_sync(unless_closed, limiter=self._turn)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StorageError(f"{self._path} is closed")

    def _close(self) -> None:
        """Close the file; what goes wrong with a store that is known to be lost was told, and must not hide why."""
        self._writer.close()
        with suppress(StorageError) if self._writer.is_lost else nullcontext():
            self._held.close()


async def snapshot(path: Path, target: Path) -> None:
    """Copy a store, as it is at this moment, into a new file (0600); it holds all of the server's secrets.

    The store may be in use, also by another process. The copy has every commit that was acknowledged before the call,
    and each later one wholly or not at all. What the server erases afterwards stays in the copy: the caller erases it.

    Raises:
        StorageError: there is no store, or it is damaged; or the new file exists already or cannot be written; then
            nothing of it stays.
    """
    await trio.to_thread.run_sync(copy, path, target)


@dataclass(frozen=True)
class Working:
    """A writer that takes commits."""


@dataclass(frozen=True)
class Closing:
    """A writer that finishes what it has taken."""


@dataclass(frozen=True)
class Ended:
    """A writer that writes no more, why, and whether its callers have been told that the store is lost."""

    why: str
    is_lost: bool


WriterState: TypeAlias = Working | Closing | Ended


@dataclass(eq=False)
class Request:
    """A commit that waits, and who waits for it.

    Attributes:
        commit: the commit.
        task: who waits; `token` is of its loop.
        refusal: why the commit was not made.
    """

    commit: Commit
    task: trio.lowlevel.Task = field(default_factory=trio.lowlevel.current_task)
    token: trio.lowlevel.TrioToken = field(default_factory=trio.lowlevel.current_trio_token)
    refusal: StorageError | None = None


class Writer:
    """The thread that writes."""

    def __init__(self, end: WriteConnection) -> None:
        self._end = end
        self._waiting: deque[Request] = deque()
        self._state: WriterState = Working()
        self._changed = threading.Condition()
        self._tidy_at = self._rests_from = time.monotonic()
        # A daemon, so that a program that does not close its store can end; what was acknowledged is durable.
        self._thread = threading.Thread(target=self._work, name=f"writes {end.path.name}", daemon=True)
        self._thread.start()

    @property
    def transactions(self) -> int:
        """How many transactions have been made."""
        return self._end.transactions

    @property
    def is_lost(self) -> bool:
        """Whether writing has ended because the store is lost."""
        return isinstance(self._state, Ended) and self._state.is_lost

    def submit(self, commit: Commit) -> Request:
        """Queue a commit; the calling task is woken once it is settled.

        Raises:
            StorageError: the writer takes no more.
        """
        request = Request(commit)
        with self._changed:
            match self._state:
                case Ended(why=why):
                    raise StoreLostError(why)
                case Closing():
                    raise StorageError(f"{self._end.path} is closed")
            self._waiting.append(request)
            self._changed.notify()
        return request

    def close(self) -> None:
        """Take no more commits, and wait until those that were queued are settled."""
        with self._changed:
            if isinstance(self._state, Working):
                self._state = Closing()
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        why, is_lost = f"{self._end.path}: writing has ended by an error of this program; start again", False
        try:
            while self._has_work():
                batch = self._batch()
                if not self._end.untidy:
                    self._tidy_at = time.monotonic()
                if batch:
                    self._settle(batch)
                self._keep_house(idle=not batch)
            why = f"{self._end.path} is closed"
        except StoreLostError as error:
            why, is_lost = str(error), True
        finally:
            self._end_for(why, is_lost=is_lost)

    def _has_work(self) -> bool:
        """Wait for something to do; false once the writer closes and no commit waits."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._waiting or not isinstance(self._state, Working), timeout=self._until_housekeeping()
            )
            return bool(self._waiting) or isinstance(self._state, Working)

    def _until_housekeeping(self) -> float | None:
        """Seconds until housekeeping begins, if no commit comes; None where there is none to do."""
        if not (self._end.untidy or self._end.checkpoint_is_due):
            return None
        return 0.0 if self._is_overdue() else max(0.0, self._rests_from - time.monotonic())

    def _is_overdue(self) -> bool:
        return self._end.untidy and time.monotonic() - self._tidy_at > OVERDUE_SECONDS

    def _batch(self) -> list[Request]:
        """The commits that go into the next transaction: one, and as many after it as fit."""
        with self._changed:
            sizes = accumulate(request.commit.size for request in self._waiting)
            fitting = sum(1 for _ in takewhile(lambda size: size <= BATCH_BYTES, sizes))
            return list(islice(self._waiting, max(fitting, 1)))  # none where none waits

    def _settle(self, batch: Sequence[Request]) -> None:
        """Make commits; where that fails for all of them, one by one, so that only those at fault are refused.

        Each stays in the queue until it is settled: whatever happens here, no caller is forgotten.
        """
        try:
            refusals = self._end.transact([request.commit for request in batch])
        except StoreLostError:
            raise
        except StorageError as error:
            if len(batch) > 1:
                for request in batch:
                    self._settle([request])
                return
            batch[0].refusal = error
            self._let_go(batch)
            if isinstance(error, DiskFullError):
                self._rests_from = time.monotonic()  # there may be room once what was erased is given back
            return
        self._rests_from = time.monotonic() + REST_SECONDS
        for place, refusal in refusals.items():
            batch[place].refusal = refusal
        self._let_go(batch)

    def _let_go(self, settled: Sequence[Request]) -> None:
        """Wake who waits for the first commits of the queue, which are settled: all tasks of a loop at once."""
        tasks: dict[trio.lowlevel.TrioToken, list[trio.lowlevel.Task]] = {}
        for request in settled:
            self._waiting.popleft()
            tasks.setdefault(request.token, []).append(request.task)
        for token, woken in tasks.items():
            with suppress(trio.RunFinishedError):  # whoever waited is gone with its loop
                token.run_sync_soon(_wake, woken)

    def _keep_house(self, idle: bool) -> None:
        """Move the log and overwrite what was erased, or a part of it, if there is time or it must not wait longer."""
        resting = idle and time.monotonic() >= self._rests_from
        if self._end.checkpoint_is_pressing or (self._end.checkpoint_is_due and resting):
            self._attempt(self._end.checkpoint)
        if self._end.untidy and (
            resting or (self._is_overdue() and (idle or self._end.transactions % TIDY_EVERY == 0))
        ):
            self._attempt(self._end.tidy)

    def _attempt(self, work: Callable[[], None]) -> None:
        """Do what can also be done later; it is put off where the disk is full or another process is in the way."""
        try:
            work()
        except StoreLostError:
            raise
        except StorageError:
            return

    def _end_for(self, why: str, *, is_lost: bool) -> None:
        with self._changed:
            self._state = Ended(why, is_lost)
        left = list(self._waiting)
        for request in left:
            request.refusal = StoreLostError(why)
        self._let_go(left)


def _wake(tasks: Sequence[trio.lowlevel.Task]) -> None:
    for task in tasks:
        trio.lowlevel.reschedule(task)
