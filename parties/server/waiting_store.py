"""A store as a server uses it for itself: what finds no room waits until there is some, and that it waits is told.

A client whose request finds no room is told to come back. What the server has to record of its own accord (an event
of a round, a share, a settled round) is needed in any case, so it waits, and the round with it: nothing that depends on
it has been said by then, nothing is lost, and the round resumes as soon as an operator has made room. See
docs/adr/0010.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

import trio

from fsl_async.errors import StorageError
from parties.events import Observer, Warned
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
        return self._before + (trio.current_time() - self._since if self._waiting else 0.0)

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
