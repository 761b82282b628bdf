"""Blobs in memory, for as long as the process lasts."""

from __future__ import annotations

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import StorageError
from parties.storage.blobs.blobs import Blobs, HarmedBlobError, Usage
from parties.storage.blobs.names import checked, checked_prefix, is_below
from parties.storage.store import same_bytes

__all__ = ["MemoryBlobs", "missing", "piece", "too_short"]


class MemoryBlobs(Blobs):
    """Blobs that live as long as their process.

    Closing does nothing, so that a party of a simulation can come back to them.
    """

    def __init__(self) -> None:
        self._blobs: dict[str, memoryview] = {}

    async def put(self, name: str, *pieces: Buffer, durable: bool = True) -> None:
        """See `Blobs.put`."""
        await trio.lowlevel.checkpoint()
        content = memoryview(b"".join(pieces))
        before = self._blobs.setdefault(checked(name), content)
        if not same_bytes(before, content):
            raise StorageError(f"{name} is stored already, with other content")

    async def read(self, name: str, start: int = 0, stop: int | None = None) -> memoryview:
        """See `Blobs.read`."""
        await trio.lowlevel.checkpoint()
        content = self._blobs.get(checked(name))
        return piece(name, content, start, stop)

    async def size(self, name: str) -> int | None:
        """See `Blobs.size`."""
        await trio.lowlevel.checkpoint()
        content = self._blobs.get(checked(name))
        return None if content is None else len(content)

    async def names(self, prefix: str) -> list[str]:
        """See `Blobs.names`."""
        await trio.lowlevel.checkpoint()
        checked_prefix(prefix)
        return sorted(name for name in self._blobs if name.startswith(prefix))

    async def erase(self, prefix: str) -> None:
        """See `Blobs.erase`."""
        await trio.lowlevel.checkpoint()
        checked_prefix(prefix)
        self._blobs = {name: content for name, content in self._blobs.items() if not is_below(name, prefix)}

    def usage(self) -> Usage:
        """See `Blobs.usage`."""
        return Usage("memory", sum(map(len, self._blobs.values())))

    async def aclose(self) -> None:
        """See `Blobs.aclose`."""


def piece(name: str, content: memoryview | None, start: int, stop: int | None) -> memoryview:
    """The bytes of a blob that `Blobs.read` is asked for, of all of its bytes.

    Raises:
        HarmedBlobError: there is no such blob, or it ends before `stop`.
    """
    if content is None:
        raise missing(name)
    if stop is not None and stop > len(content):
        raise too_short(name, len(content), stop)
    return content[start:stop]


def missing(name: str) -> HarmedBlobError:
    """The error for a blob that is not there."""
    return HarmedBlobError(f"the blob {name} is missing")


def too_short(name: str, size: int, stop: int) -> HarmedBlobError:
    """The error for a blob that ends too early."""
    return HarmedBlobError(f"the blob {name} has {size:,} bytes, {stop:,} are expected")
