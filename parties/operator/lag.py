"""How late the event loop runs: a task that sleeps a little, and measures how much longer it was away.

A loop that lags keeps every connection waiting; the reason is a computation that should have been in a thread, a disk
that blocks, or a machine with too much to do. On a machine that is shared, idle or not, the system lets every process
wait now and then, which is nobody's trouble: so one short lag is measured, and not warned of, until there are many.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

import trio

from parties.events import Observer, Warned

__all__ = ["ALARM", "INTERVAL", "EventLoopLag"]

INTERVAL = 0.25
ALARM = 0.05
"""Seconds from which on a lag counts as a stall."""

LONG = 1.0
"""Seconds of one lag that is a trouble by itself."""

MANY = 12
"""Stalls within a minute that are one together: one measurement in twenty."""

QUIET = 60.0
REMEMBERED = int(60 / INTERVAL)
STUCK = 10.0


class EventLoopLag:
    """The last minute of one event loop.

    Args:
        measured: hears of every lag in seconds, and whether it is above the alarm's threshold.
        observe: hears a warning of a long lag, or of many in a minute; at most one a minute.
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
    def trouble(self) -> str:
        """What is wrong with the loop, in words; empty where nothing is."""
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
        """Note one measurement, in seconds."""
        self._beat = trio.current_time()
        self._lags.append(lag)
        self._measured(lag, lag > ALARM)
        stalls = sum(late > ALARM for late in self._lags)
        if (lag > LONG or (lag > ALARM and stalls >= MANY)) and self._beat - self._warned >= QUIET:
            self._warned = self._beat
            self._observe(Warned(about="event-loop", explanation=_words(stalls, len(self._lags), self.worst)))


def _words(stalls: int, measured: int, worst: float) -> str:
    return (
        f"tasks ran more than {ALARM * 1000:.0f} ms late {stalls} of the last {measured} times, {worst * 1000:.0f} ms "
        "at worst; is the machine overloaded, the disk blocking, a computation outside the compute lane? This is said "
        "once a minute at most"
    )
