"""Simulated blobs, which lose in a crash what a folder on a disk would lose.

A blob that was put durably survives a crash, whole. A put or an erasure that a crash interrupts may have happened or
not. What was not put durably is gone when its server starts again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from random import Random

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from parties.docstrings import documented_by
from parties.storage.blobs.blobs import Blobs, Usage, checked, checked_prefix, is_below
from parties.storage.blobs.memory import WholeBlobs
from parties.storage.store import same_bytes
from parties.testing.processes import Life


class BlobDisk:
    """The disk under a server's blobs, which all processes of the server share.

    Attributes:
        blobs: by name, what a process finds.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, memoryview] = {}
        self._passing: set[str] = set()
        self._arriving: list[tuple[str, str, memoryview]] = []
        self._leaving: list[tuple[str, str]] = []

    def open(self) -> None:
        """A server starts: what is not durable is erased."""
        self._erase(list(self._passing))

    def begin_put(self, writer: str, name: str, content: memoryview) -> None:
        """A process is putting a blob."""
        self._arriving.append((writer, name, content))

    def end_put(self, writer: str, name: str, content: memoryview, *, durable: bool) -> None:
        """A put is over: the blob has its name."""
        self._arriving.remove((writer, name, content))
        if not durable and name not in self.blobs:
            self._passing.add(name)
        self._name(name, content)
        if durable:
            self._passing.discard(name)

    def begin_erase(self, writer: str, prefix: str) -> None:
        """A process is erasing blobs."""
        self._leaving.append((writer, prefix))

    def end_erase(self, writer: str, prefix: str) -> None:
        """An erasure is over: they are gone for good."""
        self._leaving.remove((writer, prefix))
        self._erase([name for name in self.blobs if is_below(name, prefix)])

    def crash(self, writer: str, rng: Random) -> None:
        """A process has died: what it was about to do may be done."""
        arriving, self._arriving = self._arriving, [put for put in self._arriving if put[0] != writer]
        leaving, self._leaving = self._leaving, [erased for erased in self._leaving if erased[0] != writer]
        for whose, name, content in arriving:
            if whose == writer and rng.random() < 0.5:
                self._name(name, content)
        for whose, prefix in leaving:
            if whose == writer:
                self._erase([name for name in self.blobs if is_below(name, prefix) and rng.random() < 0.5])

    def _name(self, name: str, content: memoryview) -> None:
        if not same_bytes(self.blobs.setdefault(name, content), content):
            raise StorageError(f"{name} is stored already, with other content")

    def _erase(self, names: Iterable[str]) -> None:
        for name in names:
            del self.blobs[name]
            self._passing.discard(name)


class BlobFaults(ABC):
    """The faults of blobs: every method may kill the process or raise `StorageError`; those before may wait."""

    @abstractmethod
    async def before_change(self, life: Life, name: str) -> int:
        """Called before a blob is put or erased; returns the change's number among all commits of the process.

        Args:
            life: of the process.
            name: the blob's; of an erasure `erase/` and the prefix.
        """

    @abstractmethod
    async def before_named(self, life: Life, name: str, number: int) -> None:
        """Called when everything is written, and has no name yet; of an erasure, when nothing is gone yet."""

    @abstractmethod
    async def after_change(self, life: Life, name: str, number: int) -> None:
        """Called when everything is done, before the caller learns of it."""

    @abstractmethod
    def found(self, life: Life, content: memoryview | None) -> memoryview | None:
        """What a process finds of a blob; None: nothing."""


@documented_by(Blobs)
class SimulatedBlobs(WholeBlobs):
    """A server's blobs as one life of a process uses them."""

    def __init__(self, disk: BlobDisk, life: Life, faults: BlobFaults) -> None:
        self._disk = disk
        self._life = life
        self._faults = faults

    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """See `Blobs.put`."""
        self._life.require_alive()
        writer, content = self._life.process.name, memoryview(b"".join(pieces))
        number = await self._faults.before_change(self._life, checked(name))
        self._life.require_alive()
        self._disk.begin_put(writer, name, content)
        try:
            await self._faults.before_named(self._life, name, number)
        finally:
            self._life.require_alive()
            self._disk.end_put(writer, name, content, durable=durable)
        await self._faults.after_change(self._life, name, number)

    async def names(self, prefix: str) -> list[str]:
        """See `Blobs.names`."""
        await trio.lowlevel.checkpoint()
        self._life.require_alive()
        checked_prefix(prefix)
        return sorted(name for name in self._disk.blobs if name.startswith(prefix))

    async def erase(self, prefix: str) -> None:
        """See `Blobs.erase`."""
        self._life.require_alive()
        writer, name = self._life.process.name, f"erase/{checked_prefix(prefix)}"
        number = await self._faults.before_change(self._life, name)
        self._life.require_alive()
        self._disk.begin_erase(writer, prefix)
        try:
            await self._faults.before_named(self._life, name, number)
        finally:
            self._life.require_alive()
            self._disk.end_erase(writer, prefix)
        await self._faults.after_change(self._life, name, number)

    def usage(self) -> Usage:
        """See `Blobs.usage`."""
        return Usage("a simulated disk", sum(map(len, self._disk.blobs.values())))

    async def aclose(self) -> None:
        """See `Blobs.aclose`."""
        await trio.lowlevel.checkpoint()

    async def _find(self, name: str) -> memoryview | None:
        await trio.lowlevel.checkpoint()
        self._life.require_alive()
        return self._faults.found(self._life, self._disk.blobs.get(checked(name)))
