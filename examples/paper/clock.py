"""The seconds of a cell: of the processor, over all threads and finished child processes, and on the wall."""

from __future__ import annotations

import resource
import time


class Clock:
    """Runs from its making."""

    def __init__(self) -> None:
        self._processor = _processor()
        self._wall = time.monotonic()

    @property
    def processor(self) -> float:
        """Processor seconds so far."""
        return _processor() - self._processor

    @property
    def wall(self) -> float:
        """Seconds so far."""
        return time.monotonic() - self._wall

    def resume(self, processor: float, wall: float) -> None:
        """Count from seconds that an earlier run stored; those of this run until now are left out."""
        self._processor = _processor() - processor
        self._wall = time.monotonic() - wall


def _processor() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
