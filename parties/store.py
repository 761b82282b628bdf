"""What a server must not forget, behind one interface.

`Store` keeps, per round, the journal of events and the bytes of submissions. An actor records an event before it acts
on it, and acknowledges nothing that is not recorded. `MemoryStore` keeps it all in memory: it forgets with the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError

__all__ = ["MemoryStore", "Store"]


class Store(ABC):
    """Journals and blobs; when a coroutine here returns, what it was given is kept."""

    @abstractmethod
    async def record(self, journal: str, entry: bytes) -> None:
        """Append an entry to a journal.

        Raises:
            StorageError: it could not be kept; nothing may be acknowledged.
        """

    @abstractmethod
    async def entries(self, journal: str) -> list[bytes]:
        """All entries of a journal, in order."""

    @abstractmethod
    async def keep(self, key: str, data: Buffer) -> None:
        """Keep a blob; the same key again must be the same bytes.

        Raises:
            StorageError: it could not be kept, or another blob has the key.
        """

    @abstractmethod
    async def blob(self, key: str) -> memoryview:
        """A kept blob.

        Raises:
            StorageError: there is none.
        """

    @abstractmethod
    async def erase(self, prefix: str) -> None:
        """Forget every journal and blob whose name begins with `prefix`."""


class MemoryStore(Store):
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._journals: defaultdict[str, list[bytes]] = defaultdict(list)
        self._blobs: dict[str, memoryview] = {}

    async def record(self, journal: str, entry: bytes) -> None:
        """See `Store.record`."""
        self._journals[journal].append(entry)

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        return list(self._journals[journal])

    async def keep(self, key: str, data: Buffer) -> None:
        """See `Store.keep`."""
        if self._blobs.setdefault(key, memoryview(data)) != data:
            raise StorageError(f"{key} is kept already, with other content")

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`."""
        if key not in self._blobs:
            raise StorageError(f"{key} is not kept")
        return self._blobs[key]

    async def erase(self, prefix: str) -> None:
        """See `Store.erase`."""
        for kept in (self._journals, self._blobs):
            for key in [key for key in kept if key.startswith(prefix)]:
                del kept[key]
