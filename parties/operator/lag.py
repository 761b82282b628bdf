"""How late the event loop runs: a task sleeps for a short interval and measures how much later it wakes up.

A lagging loop delays every connection. The cause is a computation that should have run in a thread, a disk that blocks,
or an overloaded machine. A shared machine lets every process wait now and then without anything being wrong, so a
single short lag is measured but no warning is given until there are many within a minute.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import trio

from parties.events import Observer, Warned

INTERVAL = 0.25
ALARM = 0.05
"""A lag of more than so many seconds is a stall."""

LONG = 1.0
"""One lag of more than so many seconds is a reason to warn by itself."""

MANY = 12
"""So many stalls within a minute are a reason to warn: one measurement in twenty."""

QUIET = 60.0
"""Seconds between two warnings."""

REMEMBERED = int(60 / INTERVAL)
STUCK = 10.0
"""Seconds without a measurement after which the loop is unhealthy."""


class EventLoopLag:
    """The lags of one event loop in the last minute.

    Args:
        measured: called with every lag in seconds, and whether it is a stall.
        observe: receives a warning of a long lag, or of many stalls in a minute; at most one warning a minute.
    """

    def __init__(self, measured: Callable[[float, bool], None], observe: Observer) -> None:
        self._measured = measured
        self._observe = observe
        self._lags: deque[float] = deque(maxlen=REMEMBERED)
        self._beat = -math.inf
        self._warned = -math.inf

    @property
    def worst(self) -> float:
        """The greatest lag of the last minute, in seconds."""
        return max(self._lags, default=0.0)

    @property
    def problem(self) -> str:
        """What is wrong with the loop, as text; empty if nothing is."""
        silent = trio.current_time() - self._beat
        if not math.isfinite(silent):
            return "the event loop is not measured yet"
        return f"the event loop's pulse is {silent:.0f} s late" if silent > STUCK + INTERVAL else ""

    async def watch(self) -> None:
        """Measure until cancelled."""
        self._beat = trio.current_time()
        while True:
            due = trio.current_time() + INTERVAL
            await trio.sleep_until(due)
            self.take(trio.current_time() - due)

    def take(self, lag: float) -> None:
        """Record one measurement, in seconds."""
        self._beat = trio.current_time()
        self._lags.append(lag)
        self._measured(lag, lag > ALARM)
        stalls = sum(late > ALARM for late in self._lags)
        if (lag > LONG or (lag > ALARM and stalls >= MANY)) and self._beat - self._warned >= QUIET:
            self._warned = self._beat
            self._observe(Warned(about="event-loop", explanation=_explanation(stalls, len(self._lags), self.worst)))


def _explanation(stalls: int, measured: int, worst: float) -> str:
    return (
        f"tasks ran more than {ALARM * 1000:.0f} ms late {stalls} of the last {measured} times, {worst * 1000:.0f} ms "
        "at worst; is the machine overloaded, the disk blocking, a computation outside the compute lane? This is said "
        "once a minute at most"
    )
