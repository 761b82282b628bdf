"""The memory of a server's process: what it soon needs again stays, what it does not need goes back to the system.

A submission takes megabytes, in pieces that live as long as a request. By default glibc maps each of them separately
and unmaps it again, and the kernel clears every page of the next one; besides, each thread has a heap of its own, and
what one thread has freed is of no use to the others. Here pieces up to 32 MiB (the most that glibc allows) come from
one heap for all threads, of which at most 256 MiB stay unused. Larger pieces are still given back at once.

To load kernels that were compiled before, the compiler behind them runs through some fifty megabytes of its own code,
of which rounds need little. The system counts all of it to the process until memory is short elsewhere; so it is given
back.

Python looks for cycles of unused objects whenever seven hundred have been made, which is each time that a client says
something; among them are all that loading has made. So those are left out, and cycles are looked for more rarely.

Rule: this changes what memory costs, and nothing that the process computes. Where the C library has no `mallopt` (musl,
macOS), or the system has no list of mappings, the function concerned does nothing.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from parties.server.storage import HELD_BYTES

# Of <malloc.h>, whose numbers belong to the binary interface; see mallopt(3).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

PIECE_BYTES: Final = 32 << 20
UNUSED_BYTES: Final = 256 << 20

NEW_OBJECTS: Final = 20_000
"""After which cycles are looked for; a few megabytes."""

MAPPINGS = Path("/proc/self/maps")
MEMINFO = Path("/proc/meminfo")
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

PARTS_SHARE: Final = 16
"""Of the memory, one in so many bytes is room for parts that were put a moment ago, and one for those on loan."""


def keep_freed_memory() -> None:
    """Keep what is freed, from now on and for the whole process, where the C library can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for setting, value in ((_MMAP_THRESHOLD, PIECE_BYTES), (_TRIM_THRESHOLD, UNUSED_BYTES), (_ARENA_MAX, 1)):
        mallopt(setting, value)


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Within this context, look for cycles of unused objects more rarely, and never among those made before it."""
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:  # what somebody else has frozen stays so
            gc.unfreeze()


def give_back_code() -> None:
    """Give back the pages of programs and libraries; those that are needed again come back from the system's cache.

    Only code that is mapped from files and that the process cannot have written to goes, so nothing can be lost. Call
    it once the kernels are loaded; fetching again what is needed takes a few milliseconds.
    """
    if not MAPPINGS.exists():
        return
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for start, stop in _code():
        advise(start, stop - start, mmap.MADV_DONTNEED)


def _code() -> Iterator[tuple[int, int]]:
    """Where read-only code from files lies: lines such as `7f00-7f80 r-xp 00001000 fe:00 5325768 /lib/libc.so.6`."""
    for line in MAPPINGS.read_text(encoding="utf-8", errors="replace").splitlines():
        place, rights, _, _, inode, *_ = line.split()
        if rights == "r-xp" and inode != "0":
            start, stop = place.split("-")
            yield int(start, 16), int(stop, 16)


def room_for_parts() -> int:
    """Bytes in memory for clients' parts that were put a moment ago, and as many for those on loan."""
    return max(HELD_BYTES, total_and_free_memory()[0] // PARTS_SHARE) if MEMINFO.exists() else HELD_BYTES


def total_and_free_memory() -> tuple[int, int]:
    """Bytes of memory that this process can have: in all, and now."""
    fields = dict(line.split(":", 1) for line in MEMINFO.read_text().splitlines())
    there, free = (1024 * int(fields[name].split()[0]) for name in ("MemTotal", "MemAvailable"))
    limit = CGROUP_LIMIT.read_text().strip() if os.access(CGROUP_LIMIT, os.R_OK) else "max"
    return (there, free) if limit == "max" else (min(there, int(limit)), min(free, int(limit)))
