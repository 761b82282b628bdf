"""Blobs that lie in a store, and those whose store is in memory, for as long as the process lasts.

The former are for parties that have no other place for them, as small deployments and tests have none.
"""

from __future__ import annotations

from abc import abstractmethod

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from parties.docstrings import documented_by
from parties.storage.blobs.blobs import Blobs, DamagedBlobError, Usage, checked, checked_prefix, is_below
from parties.storage.store import Erase, Keep, MemoryStore, Store


def missing(name: str) -> DamagedBlobError:
    """The error for a blob that is not there."""
    return DamagedBlobError(f"the blob {name} is missing")


def too_short(name: str, size: int, stop: int) -> DamagedBlobError:
    """The error for a blob that ends too early."""
    return DamagedBlobError(f"the blob {name} has {size:,} bytes, {stop:,} are expected")


@documented_by(Blobs)
class WholeBlobs(Blobs):
    """Blobs of which each is found as a whole."""

    @abstractmethod
    async def _find(self, name: str) -> memoryview | None:
        """The content of a blob; None where there is none."""

    async def read(self, name: str, start: int = 0, stop: int | None = None) -> memoryview:
        """See `Blobs.read`."""
        content = await self._find(name)
        if content is None:
            raise missing(name)
        if stop is not None and stop > len(content):
            raise too_short(name, len(content), stop)
        return content[start:stop]

    async def size(self, name: str) -> int | None:
        """See `Blobs.size`."""
        content = await self._find(name)
        return None if content is None else len(content)


class StoreBlobs(WholeBlobs):
    """Blobs among the values of a store, under the same names.

    Args:
        store: the store, which somebody else closes.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """See `Blobs.put`; always durable."""
        content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        await self._store.commit(Keep(checked(name), content))

    async def names(self, prefix: str) -> list[str]:
        """See `Blobs.names`."""
        return await self._store.keys(checked_prefix(prefix))

    async def erase(self, prefix: str) -> None:
        """See `Blobs.erase`; a store erases all that begins alike, so what is to stay is kept in the same commit."""
        below = await self._store.keys(checked_prefix(prefix))
        staying = [name for name in below if not is_below(name, prefix)]
        if len(staying) < len(below):
            await self._store.commit(
                Erase(prefix), *[Keep(name, bytes(await self._store.blob(name))) for name in staying]
            )

    def usage(self) -> Usage:
        """See `Blobs.usage`; nobody has counted them."""
        return Usage("the store", 0)

    async def aclose(self) -> None:
        """See `Blobs.aclose`; the store stays open."""

    async def check_room(self, needed: int) -> None:
        """See `Blobs.check_room`."""
        await self._store.check_room(needed)

    async def _find(self, name: str) -> memoryview | None:
        """The content of a blob, if there is one of that name.

        Raises:
            StorageError: there is, and it cannot be read.
        """
        try:
            return await self._store.blob(checked(name))
        except StorageError:
            if name in await self._store.keys(name):
                raise
            return None


class MemoryBlobs(StoreBlobs):
    """Blobs that live as long as their process, in a store of their own.

    Closing does nothing, so that a party of a simulation can come back to them.
    """

    def __init__(self) -> None:
        self._memory = MemoryStore()
        super().__init__(self._memory)

    def usage(self) -> Usage:
        """See `Blobs.usage`."""
        return Usage("memory", self._memory.size)
