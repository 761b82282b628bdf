"""What every served process does with signals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["late_hangups_ignored"]


@contextmanager
def late_hangups_ignored() -> Iterator[None]:
    """Ignore a SIGHUP that comes while the process ends: trio raises what nobody took again, and dies."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
