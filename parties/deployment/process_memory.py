"""Memory that a server lets go of and soon needs again, and that therefore stays with its process.

A submission takes megabytes, in pieces that live as long as a request. Left alone, glibc maps each of them by itself
and unmaps it again, and the kernel clears every page of the next one; worse, each thread has a heap of its own, and
what one has freed is of no use to the others. Here pieces up to 32 MiB (glibc takes no more) come from one heap for all
threads, of which at most 256 MiB stay unused. Larger ones are still given back at once.

This changes what memory costs, and nothing else: where the C library has no `mallopt` (musl, macOS), it stays away.
"""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["keep_freed_memory"]

# Of <malloc.h>, whose numbers belong to the binary interface; see mallopt(3).
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

PIECE_BYTES: Final = 32 << 20
UNUSED_BYTES: Final = 256 << 20


def keep_freed_memory() -> None:
    """Keep what is freed, from now on and for the whole process, where the C library can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    for setting, value in ((_MMAP_THRESHOLD, PIECE_BYTES), (_TRIM_THRESHOLD, UNUSED_BYTES), (_ARENA_MAX, 1)):
        mallopt(setting, value)
