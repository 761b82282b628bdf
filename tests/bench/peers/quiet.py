"""A machine on which nothing else runs: one processor for every turn, and none that begins while others are at work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fsl_async.errors import MisuseError

LOOK = 0.5
"""Seconds over which others are watched."""

STAT = Path("/proc/stat")
IDLE_FIELDS = (3, 4)
"""Of a processor's times in /proc/stat, idle and waiting for the disk; see proc(5)."""


def busy_processors() -> float:
    """How many processors are at work while this process sleeps; the load of a minute where that is not told."""
    if not STAT.exists():
        return os.getloadavg()[0]
    before, begun = _worked(), time.perf_counter()
    time.sleep(LOOK)
    return max(0.0, (_worked() - before) / (time.perf_counter() - begun))


def wait_until_idle(idle: float, patience: float, told: Callable[[str], None]) -> None:
    """Wait until others take at most so much of the processors.

    Args:
        idle: so many processors.
        patience: seconds until it is given up.
        told: hears that somebody is waited for.

    Raises:
        MisuseError: they are still at work then.
    """
    until = time.monotonic() + patience
    waited = False
    while (busy := busy_processors()) > idle:
        if time.monotonic() >= until:
            raise MisuseError(
                f"others take {busy:.2g} processors of this machine, more than --idle {idle:g}, and have for "
                f"{patience:g} seconds: end them, wait longer (--patience), or allow more"
            )
        if not waited:
            told(f"waiting for an idle machine: others take {busy:.2g} processors, and at most {idle:g} are allowed")
            waited = True


@contextmanager
def on_one_processor() -> Iterator[None]:
    """Within the block this process and those that it starts stay on one processor, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _worked() -> float:
    """Seconds that all processors have worked so far."""
    times = [int(word) for word in STAT.read_text().splitlines()[0].split()[1:9]]
    return (sum(times) - sum(times[field] for field in IDLE_FIELDS)) / os.sysconf("SC_CLK_TCK")
