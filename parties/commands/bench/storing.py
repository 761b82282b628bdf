"""Bulk stored as a server stores it, and what that takes of the processors and of the disk."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from parties.commands.bench.members import name_of
from parties.storage.blobs.blobs import Blobs
from parties.storage.blobs.folder import FolderBlobs

SMALL_PART, LARGE_PART = 82_552, 2_073_904
"""Public parts: m = 2^15, k = 256, and m = 2^20, k = 10,486; l = 64, verified."""


class Stored(msgspec.Struct, frozen=True):
    """What storing some bulk took.

    Attributes:
        seconds: until all of it was durable.
        processor: seconds of all threads.
        written: bytes that went to the disk for each byte of it, erasing included; 0 where the folder is in memory.
    """

    seconds: float
    processor: float
    written: float


class Place(Protocol):
    """Where bulk is stored, to be measured."""

    async def put(self, number: int, data: bytes) -> None:
        """Store one of many."""

    async def erase(self) -> None:
        """Erase all of them."""


async def store_in_folder(size: int, count: int, at_once: int = 16) -> Stored:
    """Store so many blobs in a folder, some of them at a time, and erase them."""
    with tempfile.TemporaryDirectory(prefix="fsl-bench-") as folder:
        place = await FolderBlobs.open(Path(folder) / "blobs", b"bench")
        try:
            return await stored_at(_PutBlobs(place), size, count, at_once)
        finally:
            await place.aclose()


class _PutBlobs:
    def __init__(self, place: Blobs) -> None:
        self._place = place

    async def put(self, number: int, data: bytes) -> None:
        await self._place.put(f"round-00000001/parts/{name_of(number)}/submit-0/{number:064x}", data)

    async def erase(self) -> None:
        await self._place.erase("round-00000001")


async def stored_at(place: Place, size: int, count: int, at_once: int) -> Stored:
    """Store so many pieces of bulk of one size, some of them at a time, and erase them."""
    data = [bytes([number + 1]) * size for number in range(4)]
    before, processor, begun = _written(), time.process_time(), time.perf_counter()
    turns = iter(range(count))

    async def some() -> None:
        for number in turns:
            await place.put(number, data[number % len(data)])

    async with trio.open_nursery() as nursery:
        for _ in range(at_once):
            nursery.start_soon(some)
    seconds, processor = time.perf_counter() - begun, time.process_time() - processor
    await place.erase()
    return Stored(seconds, processor, (_written() - before) / (size * count))


def _written() -> int:
    """Bytes that this process has given to the disk so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
