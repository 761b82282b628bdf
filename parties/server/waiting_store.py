"""A store as a server uses it for itself: what finds no room waits until there is some.

A client whose request finds no room is told to come back. What the server has to record of its own accord (an event
of a round, a share, a settled round) is needed in any case, so it waits, and the round with it: nothing that depends on
it has been said by then, nothing is lost, and the round resumes as soon as an operator has made room. See
docs/adr/0010.
"""

from __future__ import annotations

import trio

from parties.events import Observer, Warned
from parties.storage.store import Change, DiskFullError, Store

PAUSE = 5.0
"""Seconds between two attempts."""


class PatientStore(Store):
    """Another store whose commits wait for room.

    Args:
        store: the store.
        observe: hears when something has to wait, once until it has found room.
    """

    def __init__(self, store: Store, observe: Observer) -> None:
        self._store = store
        self._observe = observe
        self._waiting: set[trio.lowlevel.Task] = set()

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`; a full disk makes it wait. Cancelled while it waits, it has changed nothing."""
        task = trio.lowlevel.current_task()
        try:
            while not await self._fits(task, changes):  # noqa: ASYNC110 - nobody tells when a disk has room
                await trio.sleep(PAUSE)
        finally:
            self._waiting.discard(task)

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

    async def _fits(self, task: trio.lowlevel.Task, changes: tuple[Change, ...]) -> bool:
        try:
            await self._store.commit(*changes)
        except DiskFullError as error:
            if not self._waiting:
                explanation = f"{error}; the server waits, and resumes when there is room"
                self._observe(Warned(about="store", explanation=explanation))
            self._waiting.add(task)
            return False
        return True
