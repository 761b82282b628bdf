"""A simulated disk that loses unsynced data in a crash, and a store on it.

Written data survives a crash only if it has been synced. Of unsynced data any prefix may survive, with parts of it
missing: the last write is torn. `DiskStore` is a log of commits with a checksum each; it syncs a commit before it
returns, and reads a log back up to the first entry that is incomplete.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from random import Random

import msgpack
import trio

from parties.docstrings import documented_by
from parties.storage.store import Change, Erase, Keep, MemoryStore, Put, Record, Store, checked
from parties.testing.processes import Life

_HEADER = 8
_KINDS: dict[str, type[Change]] = {"record": Record, "keep": Keep, "put": Put, "erase": Erase}


class Disk:
    """A file of bytes, of which a prefix is synced.

    Attributes:
        data: the contents, as a running process sees them.
        synced: the length of the prefix that survives a crash.
    """

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)
        self.synced = len(data)

    def write(self, data: bytes) -> None:
        """Append data; it is not synced yet."""
        self.data += data

    def sync(self) -> None:
        """Sync everything that has been written."""
        self.synced = len(self.data)

    def crash(self, rng: Random) -> None:
        """Lose unsynced data, except for a prefix of random length, which may have holes.

        Often the whole length is kept: a file's new length may be on disk before its contents are.
        """
        kept = len(self.data) if rng.random() < 0.5 else rng.randint(self.synced, len(self.data))
        del self.data[kept:]
        if rng.random() < 0.5:
            start, stop = sorted(rng.randint(self.synced, kept) for _ in (0, 1))
            self.data[start:stop] = bytes(stop - start)
        self.synced = kept

    def restore(self, data: bytes) -> None:
        """Replace the contents by an earlier copy."""
        self.data = bytearray(data)
        self.synced = len(data)


class DiskFaults(ABC):
    """The faults of a commit: every method may kill the process, wait, or raise `StorageError`."""

    @abstractmethod
    async def before_write(self, life: Life, changes: tuple[Change, ...]) -> None:
        """Called before anything is written."""

    @abstractmethod
    async def before_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        """Called when everything is written and nothing synced."""

    @abstractmethod
    async def after_sync(self, life: Life, changes: tuple[Change, ...]) -> None:
        """Called when everything is durable, before the caller learns of it."""


@documented_by(Store)
class DiskStore(Store):
    """A store that is a log on a `Disk`, as one life of a process uses it."""

    def __init__(self, disk: Disk, life: Life, faults: DiskFaults) -> None:
        self._disk = disk
        self._life = life
        self._faults = faults
        self._contents = MemoryStore()
        self._turn = trio.Lock()
        self._log = _whole_entries(disk)

    async def read(self) -> DiskStore:
        """Replay the log; await this once before anything else."""
        for entry in self._log:
            await self._contents.commit(*(_KINDS[kind](*fields) for kind, *fields in msgpack.unpackb(entry)))
        return self

    async def commit(self, *changes: Change) -> None:
        """See `Store.commit`."""
        async with self._turn:
            self._life.require_alive()
            self._life.process.commits += 1
            plain = tuple(checked(change) for change in changes)
            self._contents._check(plain)
            await self._faults.before_write(self._life, plain)
            self._life.require_alive()
            self._disk.write(_framed(plain))
            try:
                await self._faults.before_sync(self._life, plain)
            finally:
                self._life.require_alive()
                self._disk.sync()
                await self._contents.commit(*plain)
            await self._faults.after_sync(self._life, plain)

    async def entries(self, journal: str) -> list[bytes]:
        """See `Store.entries`."""
        self._life.require_alive()
        return await self._contents.entries(journal)

    async def blob(self, key: str) -> memoryview:
        """See `Store.blob`."""
        self._life.require_alive()
        return await self._contents.blob(key)

    async def keys(self, prefix: str) -> list[str]:
        """See `Store.keys`."""
        self._life.require_alive()
        return await self._contents.keys(prefix)

    async def aclose(self) -> None:
        """See `Store.aclose`."""


def _framed(changes: tuple[Change, ...]) -> bytes:
    body: bytes = msgpack.packb([[type(change).__name__.lower(), *vars(change).values()] for change in changes])
    return len(body).to_bytes(4, "big") + zlib.crc32(body).to_bytes(4, "big") + body


def _whole_entries(disk: Disk) -> list[bytes]:
    """The entries of a log up to the first incomplete one; the rest of the log is truncated."""
    entries, start = [], 0
    while start + _HEADER <= len(disk.data):
        size, checksum = (int.from_bytes(disk.data[at : at + 4], "big") for at in (start, start + 4))
        body = bytes(disk.data[start + _HEADER : start + _HEADER + size])
        if not body or len(body) < size or zlib.crc32(body) != checksum:  # the checksum of an empty body is zero
            break
        entries.append(body)
        start += _HEADER + size
    del disk.data[start:]
    disk.synced = min(disk.synced, start)
    return entries
