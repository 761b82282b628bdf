"""Says that kernels are being compiled, because a first use that takes long for no visible reason looks like a fault.

Kernels are compiled when they are first called and kept on disk, so this happens once for each installation and kind of
processor. The logger `parties.kernels` is always told, at level INFO. Where nothing listens to it, a person at a
terminal or a notebook reads it on stderr, once it takes noticeable time; stdout has data alone. Nothing is said when
kernels are loaded from the disk. To switch it off: `logging.getLogger("parties.kernels").setLevel(logging.WARNING)`.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO, TypeVar

from fsl_async import kernels

_log = logging.getLogger("parties.kernels")
_one_at_a_time = threading.Lock()

ResultT = TypeVar("ResultT")
NOTICEABLE = 0.5
"""Seconds of compiling after which a person is told, when the next kernel follows."""
NOTICE = "compiling kernels, once: this takes a while now, and later runs load them from the disk"


def watched(work: Callable[[], ResultT]) -> ResultT:
    """Do something that may call kernels."""
    if kernels.compiles():
        with _one_at_a_time:
            _watch()
    return work()


class Notice:
    """Tells once that kernels are being compiled; one compiles at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._depth = 0
        self._began = self._spent = 0.0
        self._tell: Callable[[], None] = self._tell_logger

    def on_start(self, event: Any) -> None:
        """A kernel is not on disk, and its compilation begins; it may begin others."""
        self._depth += 1
        if self._depth == 1:
            self._began = self._clock()
            self._tell()

    def on_end(self, event: Any) -> None:
        """It has ended."""
        self._depth -= 1
        if self._depth == 0:
            self._spent += self._clock() - self._began

    def notify(self, event: Any) -> None:
        """Take one of the compiler's events."""
        (self.on_start if event.is_start else self.on_end)(event)

    def _tell_logger(self) -> None:
        _log.info(NOTICE)
        self._tell = _nothing if _is_heard() or _is_switched_off() else self._tell_person

    def _tell_person(self) -> None:
        if self._spent >= NOTICEABLE:
            self._tell = _nothing
            if (stream := sys.stderr) and _is_read_by_a_person(stream):
                print(f"fsl-async: {NOTICE}", file=stream, flush=True)


@functools.cache
def _watch() -> None:
    """Hear of every compilation in this process from now on."""
    from numba.core import event  # the compiler takes half a second to import

    event.Listener.register(Notice)
    event.register("numba:compile", Notice())  # type: ignore[no-untyped-call]


def _is_heard() -> bool:
    return _log.isEnabledFor(logging.INFO) and _log.hasHandlers()


def _is_switched_off() -> bool:
    levels = [logger.level for logger in (_log, logging.getLogger("parties")) if logger.level]
    return bool(levels) and levels[0] > logging.INFO


def _is_read_by_a_person(stream: TextIO) -> bool:
    return stream.isatty() or type(stream).__module__.partition(".")[0] == "ipykernel"


def _nothing() -> None:
    """It has been told."""
