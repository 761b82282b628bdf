"""A disk that a crash takes at its word, and a store on it.

What is written survives a crash only once it has been synced; of what has not, any beginning may survive, and parts
of that be missing: the last write is torn. `DiskStore` is a log of commits with a checksum each, and what it
acknowledges it has synced; it reads a log back up to the first entry that is not whole.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from random import Random
from typing import Any, assert_never

import msgpack
import trio

from parties.storage.store import Change, Erase, Keep, MemoryStore, Put, Record, Store, checked
from parties.testing.processes import Life

__all__ = ["Disk", "DiskStore", "Trouble"]

_HEADER = 8
_KINDS: dict[str, type[Change]] = {"record": Record, "keep": Keep, "put": Put, "erase": Erase}


class Disk:
    """A file of bytes: what is written, and how much of that is synced.

    Attributes:
        data: as a running process sees it.
        synced: bytes of it that survive whatever happens.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)

    def write(self, data: bytes) -> None:
        """Append; the operating system has it, the disk may not."""
        self.data += data

    def sync(self) -> None:
        """Have the disk take all that is written."""
        self.synced = len(self.data)

    def crash(self, rng: Random) -> None:
        """Lose what is not synced, but for a beginning of it, as long as chance will have it, and with holes in it.

        Often all of its length is kept: a file may be known to have grown before the disk has what is in it.
        """
        kept = len(self.data) if rng.random() < 0.5 else rng.randint(self.synced, len(self.data))
        del self.data[kept:]
        if rng.random() < 0.5:
            start, stop = sorted(rng.randint(self.synced, kept) for _ in (0, 1))
            self.data[start:stop] = bytes(stop - start)
        self.synced = kept

    def restore(self, data: bytes) -> None:
        """Be as an earlier copy was."""
        self.data = bytearray(data)
        self.synced = len(data)

    def cut_back(self, size: int) -> None:
        """Forget what stands behind so many bytes."""
        del self.data[size:]
        self.synced = min(self.synced, size)


class Trouble(ABC):
    """What may go wrong with a commit; every call may kill the process, wait, or raise `StorageError`."""

    @abstractmethod
    async def before_write(self, life: Life, changes: tuple[Change, ...]) -> None:
        """Nothing has been written."""

    @abstractmethod
    async def before_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        """All is written, and not synced."""

    @abstractmethod
    async def after_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        """All is durable, and nobody knows yet."""


class DiskStore(Store):
    """One life's view of a store that is a log on a `Disk`."""

    def __init__(self, disk: Disk, life: Life, trouble: Trouble) -> None:
        self._disk = disk
        self._life = life
        self._trouble = trouble
        self._kept = MemoryStore()
        self._turn = trio.Lock()
        self._log = _whole_entries(disk)

    async def read(self) -> DiskStore:
        """Take up what the log says; to be awaited once before anything else."""
        for entry in self._log:
            await self._kept.commit(*_decode(entry))
        return self

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`."""
        async with self._turn:
            self._life.require_alive()
            self._life.process.commits += 1
            plain = tuple(checked(change) for change in changes)
            self._kept._check(plain)
            await self._trouble.before_write(self._life, plain)
            self._life.require_alive()
            self._disk.write(_framed(plain))
            try:
                await self._trouble.before_sync(self._life, plain)
            finally:
                self._life.require_alive()
                self._disk.sync()
                await self._kept.commit(*plain)
            await self._trouble.after_sync(self._life, plain)

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        self._life.require_alive()
        return await self._kept.entries(journal)

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`."""
        self._life.require_alive()
        return await self._kept.blob(key)

    async def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        self._life.require_alive()
        return await self._kept.keys(prefix)

    async def aclose(self) -> None:
        """See `Store.aclose`."""


def _framed(changes: tuple[Change, ...]) -> bytes:
    body: bytes = msgpack.packb([_encode(change) for change in changes])
    return len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def _whole_entries(disk: Disk) -> list[bytes]:
    """The entries of a log up to the first that is not whole; what follows is cut off."""
    entries, start = [], 0
    while start + _HEADER <= len(disk.data):
        size, checksum = (int.from_bytes(disk.data[at : at + 4], "big") for at in (start, start + 4))
        body = bytes(disk.data[start + _HEADER : start + _HEADER + size])
        if not body or len(body) < size or zlib.crc32(body) != checksum:  # zeros are the checksum of nothing
            break
        entries.append(body)
        start += _HEADER + size
    disk.cut_back(start)
    return entries


def _encode(change: Change) -> list[Any]:
    match change:
        case Record(journal=journal, entry=entry):
            return ["record", journal, entry]
        case Keep(key=key, data=data):
            return ["keep", key, bytes(data)]
        case Put(key=key, data=data):
            return ["put", key, bytes(data)]
        case Erase(prefix=prefix):
            return ["erase", prefix]
    assert_never(change)


def _decode(body: bytes) -> list[Change]:
    return [_KINDS[kind](*fields) for kind, *fields in msgpack.unpackb(body)]
