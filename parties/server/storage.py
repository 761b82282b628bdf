"""Store and blobs as a server uses them for itself: what finds no room, or cannot reach them, waits, and that is told.

A client whose request finds no room is told to come back. What the server has to record of its own accord (an event
of a round, a share, a settled round) is needed in any case, so it waits, and the round with it: nothing that depends on
it has been said by then, nothing is lost, and the round resumes as soon as an operator has made room. See
docs/adr/0010. Of blobs, what could not be erased is erased with what is erased next, or at the next start.

Public parts that were put a moment ago are forwarded and added from memory, not read back nor hashed again, and let go
once they have been both. They are in the blobs as well, durably; so whatever has no room is let go, the oldest first.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from parties.events import Observer, Warned
from parties.status import BlobsStatus
from parties.storage.blobs.blobs import Blobs, BlobsAwayError, Usage
from parties.storage.store import Change, DiskFullError, Store

ResultT = TypeVar("ResultT")

PAUSE = 5.0
"""Seconds between two attempts."""


class Standstill:
    """What a server's own disk or blobs keep from being done, and for how long they have.

    Args:
        observe: hears when something has to wait: of each kind once, until all that waited has gone on.
    """

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._waiting: dict[str, int] = {}
        self._since = 0.0
        self._before = 0.0

    @property
    def what(self) -> str:
        """What holds the server up, for people; empty where nothing does."""
        places = " and ".join(sorted(self._waiting))
        return f"this server's own {places}, out of room or of reach" if places else ""

    @property
    def seconds(self) -> float:
        """How long something has waited here, in all."""
        return self._before + self.present_seconds

    @property
    def present_seconds(self) -> float:
        """For how long something has waited that still does."""
        return trio.current_time() - self._since if self._waiting else 0.0

    async def outlast(self, call: Callable[[], Awaitable[ResultT]], about: str, *errors: type[StorageError]) -> ResultT:
        """Make a call until it ends without one of these errors."""
        waits = False
        try:
            while True:
                try:
                    return await call()
                except errors as error:
                    if not waits:
                        waits = True
                        self._begin(about, error)
                await trio.sleep(PAUSE)
        finally:
            if waits:
                self._end(about)

    def _begin(self, about: str, error: StorageError) -> None:
        if not self._waiting:
            self._since = trio.current_time()
        if about not in self._waiting:
            explanation = f"{error}; the server waits, and resumes when that is over"
            self._observe(Warned(about=about, explanation=explanation))
        self._waiting[about] = self._waiting.get(about, 0) + 1

    def _end(self, about: str) -> None:
        before, left = self.seconds, self._waiting.pop(about) - 1
        if left:
            self._waiting[about] = left
        self._before, self._since = before, trio.current_time()


class PatientStore(Store):
    """Another store whose commits wait for room.

    Args:
        store: the store.
        standstill: takes note of what has to wait.
    """

    def __init__(self, store: Store, standstill: Standstill) -> None:
        self._store = store
        self._standstill = standstill

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`; a full disk makes it wait. Cancelled while it waits, it has changed nothing."""
        await self._standstill.outlast(partial(self._store.commit, *changes), "store", DiskFullError)

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        return await self._store.entries(journal)

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`."""
        return await self._store.blob(key)

    async def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        return await self._store.keys(prefix)

    async def check_room(self, needed: int) -> None:
        """See `Store.check_room`."""
        await self._store.check_room(needed)

    async def aclose(self) -> None:
        """See `Store.aclose`."""
        await self._store.aclose()


class PatientBlobs(Blobs):
    """Other blobs whose calls wait.

    Args:
        blobs: the blobs.
        standstill: takes note of what has to wait.
        observe: hears what could not be erased.
    """

    def __init__(self, blobs: Blobs, standstill: Standstill, observe: Observer) -> None:
        self._blobs = blobs
        self._standstill = standstill
        self._observe = observe
        self._to_erase: set[str] = set()

    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """See `Blobs.put`; a full disk makes it wait, too."""
        await self._patiently(partial(self._blobs.put, name, *pieces, durable=durable))

    async def read(self, name: str, start: int = 0, stop: int | None = None) -> memoryview:
        """See `Blobs.read`."""
        return await self._patiently(partial(self._blobs.read, name, start, stop))

    async def size(self, name: str) -> int | None:
        """See `Blobs.size`."""
        return await self._patiently(partial(self._blobs.size, name))

    async def names(self, prefix: str) -> list[str]:
        """See `Blobs.names`."""
        return await self._patiently(partial(self._blobs.names, prefix))

    async def groups(self) -> list[str]:
        """See `Blobs.groups`."""
        return await self._patiently(self._blobs.groups)

    async def erase(self, prefix: str) -> None:
        """See `Blobs.erase`; it does not wait: nothing depends on it."""
        self._to_erase.add(prefix)
        try:
            for each in sorted(self._to_erase):
                await self._blobs.erase(each)
                self._to_erase.discard(each)
        except BlobsAwayError as error:
            self._observe(Warned(about="blobs", explanation=f"{prefix} is not erased yet: {error}"))

    async def check_room(self, needed: int) -> None:
        """See `Blobs.check_room`."""
        await self._blobs.check_room(needed)

    def usage(self) -> Usage:
        """See `Blobs.usage`."""
        return self._blobs.usage()

    def status(self) -> BlobsStatus:
        """The same for the operator."""
        usage = self._blobs.usage()
        return BlobsStatus(
            where=usage.where, stored_bytes=usage.stored, free_bytes=usage.free, to_erase=len(self._to_erase)
        )

    async def aclose(self) -> None:
        """See `Blobs.aclose`."""
        await self._blobs.aclose()

    async def _patiently(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Make a call until there is room and the blobs can be reached."""
        return await self._standstill.outlast(call, "blobs", DiskFullError, BlobsAwayError)


HELD_BYTES: Final = 128 << 20
"""Room in memory for parts that were put a moment ago, and as much for those that only their carrier has stored, where
nobody says how much memory there is."""

ADDED = 1
"""What a part is still wanted for that was forwarded to this server."""

FORWARDED_AND_ADDED = 2
"""What a part is wanted for that its client has brought."""


class PartCache:
    """Parts in memory, by their names.

    Args:
        room: bytes in all; a part counts with all of the message that it came in, which it keeps alive.
        evicts: whether the oldest are let go for another one; else it is not held where there is no room.
    """

    def __init__(self, room: int = HELD_BYTES, *, evicts: bool = True) -> None:
        self._room = room
        self._evicts = evicts
        self._parts: dict[str | bytes, memoryview] = {}
        self._wanted: dict[str | bytes, int] = {}

    def hold(self, name: str | bytes, part: Buffer, wanted: int = FORWARDED_AND_ADDED) -> bool:
        """Hold a part, if there is room for it, until it was used as often as it is wanted; whether it is held."""
        view = memoryview(part).toreadonly()
        if self._evicts or (name not in self._parts and _kept_alive(view) <= self._room):
            self.let_go(name)
            self._parts[name], self._wanted[name] = view, wanted
            self._room -= _kept_alive(view)
            while self._room < 0:
                self.let_go(next(iter(self._parts)))
        return name in self._parts

    def find(self, name: str | bytes) -> memoryview | None:
        """The part of that name, if it is held."""
        return self._parts.get(name)

    def use(self, name: str | bytes) -> None:
        """Note that a part was used; the last use lets it go."""
        if name in self._parts:
            self._wanted[name] -= 1
            if not self._wanted[name]:
                self.let_go(name)

    def let_go(self, name: str | bytes) -> None:
        """Hold that part no longer, if it is held."""
        part = self._parts.pop(name, None)
        if part is not None:
            del self._wanted[name]
            self._room += _kept_alive(part)

    def clear(self) -> None:
        """Hold none."""
        for name in list(self._parts):
            self.let_go(name)


def _kept_alive(view: memoryview) -> int:
    """Bytes of all that a view is a part of."""
    return memoryview(view.obj).nbytes
