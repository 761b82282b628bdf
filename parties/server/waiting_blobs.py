"""Blobs as a server uses them for itself: what finds no room, or cannot reach them, waits.

See `parties.server.waiting_store`. What could not be erased is erased with what is erased next, or at the next start.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from fsl_async.digests import Buffer
from parties.events import Observer, Warned
from parties.server.waiting_store import Standstill
from parties.status import BlobsStatus
from parties.storage.blobs.blobs import Blobs, BlobsAwayError, Usage
from parties.storage.store import DiskFullError

ResultT = TypeVar("ResultT")


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
