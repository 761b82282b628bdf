"""The memory of a server's process: what its start took and its rounds do not need goes back to the system.

To load kernels that were compiled before, the compiler behind them runs through some fifty megabytes of its own code,
of which rounds need a few. The system counts all of it to the process until memory is short elsewhere.

Rule: nothing here changes what the process computes. It is advice, and where the system takes none (it is not Linux),
nothing happens.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path

__all__ = ["give_back_code"]

MAPPINGS = Path("/proc/self/maps")


def give_back_code() -> None:
    """Let go of the pages of programs and libraries; those that are needed again come back from the system's cache.

    Only code goes that is mapped from files and that the process cannot have written to: nothing can be lost. Call it
    once the kernels are loaded; the code of a few milliseconds' work is then fetched again.
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
