"""What a party must not forget, behind one interface.

A store has journals (lists of entries), blobs (written once) and values (replaced at will). An actor commits an event
before it acts on it, and acknowledges nothing that is not committed; changes that only make sense together go into one
commit. `MemoryStore` keeps all of it in memory: it forgets with the process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError

__all__ = ["Change", "Erase", "Keep", "MemoryStore", "Put", "Record", "Store"]


@dataclass(frozen=True)
class Record:
    """Append an entry to a journal."""

    journal: str
    entry: bytes = field(repr=False)


@dataclass(frozen=True)
class Keep:
    """Keep a blob for good; the same key again must be the same bytes."""

    key: str
    data: Buffer = field(repr=False)


@dataclass(frozen=True)
class Put:
    """Set a value, in place of the one that the key had."""

    key: str
    data: Buffer = field(repr=False)


@dataclass(frozen=True)
class Erase:
    """Forget every journal, blob and value whose name begins with a prefix."""

    prefix: str


Change: TypeAlias = Record | Keep | Put | Erase


class Store(ABC):
    """Journals, blobs and values."""

    @abstractmethod
    async def commit(self, *changes: Change) -> None:
        """Make all of these changes, in order, or none of them; when this returns they are durable.

        A caller that is cancelled does not know whether they were made.

        Raises:
            StorageError: they could not be kept, or a blob is kept already with other content; nothing has changed, and
                nothing that depends on them may be acknowledged.
        """

    @abstractmethod
    async def entries(self, journal: str) -> list[bytes]:
        """All entries of a journal, in order; none where it is unknown."""

    @abstractmethod
    async def blob(self, key: str) -> memoryview:
        """A kept blob, or a value.

        Raises:
            StorageError: there is none.
        """

    @abstractmethod
    async def keys(self, prefix: str) -> list[str]:
        """The keys of all blobs and values that begin with a prefix, sorted."""

    @abstractmethod
    async def aclose(self) -> None:
        """Let go of what the store is kept in; a second time does nothing."""

    async def record(self, journal: str, entry: bytes) -> None:
        """Append one entry to a journal; see `commit`."""
        await self.commit(Record(journal, entry))


class MemoryStore(Store):
    """A store that lives as long as its process."""

    def __init__(self) -> None:
        self._journals: defaultdict[str, list[bytes]] = defaultdict(list)
        self._blobs: dict[str, memoryview] = {}

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`."""
        self._check(changes)
        for change in changes:
            match change:
                case Record(journal=journal, entry=entry):
                    self._journals[journal].append(entry)
                case Keep(key=key, data=data) | Put(key=key, data=data):
                    self._blobs[key] = memoryview(data)
                case Erase(prefix=prefix):
                    self._erase(prefix)

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        return list(self._journals.get(journal, []))

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`."""
        if key not in self._blobs:
            raise StorageError(f"{key} is not kept")
        return self._blobs[key]

    async def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        return sorted(key for key in self._blobs if key.startswith(prefix))

    async def aclose(self) -> None:
        """See `Store.aclose`."""

    def _check(self, changes: tuple[Change, ...]) -> None:
        for change in changes:
            if isinstance(change, Keep) and self._blobs.get(change.key, memoryview(change.data)) != change.data:
                raise StorageError(f"{change.key} is kept already, with other content")

    def _erase(self, prefix: str) -> None:
        for key in [key for key in self._journals if key.startswith(prefix)]:
            del self._journals[key]
        for key in [key for key in self._blobs if key.startswith(prefix)]:
            del self._blobs[key]
