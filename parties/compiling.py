"""Says that kernels are being compiled, because a first use that takes long for no visible reason looks like a fault.

Kernels are compiled when they are first called and kept on disk, so this happens once for each installation and kind of
processor. The logger `parties.kernels` is always told, at level INFO. Where nothing listens to it, a person at a
terminal or a notebook reads it on stderr, once it takes noticeable time; stdout has data alone. Nothing is said when
kernels are loaded from the disk. To switch it off: `logging.getLogger("parties.kernels").setLevel(logging.WARNING)`.

A server, or a demonstration, does not wait for that: where no kernel is on disk it begins in the plain lane, and a
`Rehearsal` has them compiled by another process.
"""

from __future__ import annotations

import functools
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

from fsl_async import kernels
from fsl_async.task import Task

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


_SOURCE: Final = Path("trees", "evaluation_kernels.py")
"""A file of kernels without which no server computes."""


def is_cold() -> bool:
    """Whether kernels are to be used here of which none is on disk yet."""
    if not kernels.compiles():
        return False
    folder = Path(str(kernels.__file__)).parent
    caches = [folder, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "numba")]
    caches = [Path(own)] if (own := os.environ.get("NUMBA_CACHE_DIR")) else caches
    since = (folder / _SOURCE).stat().st_mtime
    pattern = f"{_SOURCE.stem}.add*.py{sys.version_info.major}{sys.version_info.minor}.nbi"
    return all(found.stat().st_mtime < since for cache in caches for found in cache.rglob(pattern))


class Rehearsal:
    """Another process that has kernels compiled and kept on disk, while this one computes in the plain lane."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        kernels.select_isa("plain")
        _log.info("kernels are being compiled by another process, once; until that is done this one goes without")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it ends
        self._process = subprocess.Popen(
            [sys.executable, "-m", "parties.simulation.rehearsal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
        )
        assert self._process.stdin is not None  # noqa: S101 - asked for
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            pipe.write(pickle.dumps(list(tasks)))

    @property
    def is_over(self) -> bool:
        """Whether it has ended, well or not."""
        return self._process.poll() is not None

    def change_lanes(self) -> str:
        """Compute with kernels from now on, once it is over; what is under way goes on as it began.

        Returns:
            Why this process stays in the plain lane, and nothing where it does not: it never compiles so much itself.
        """
        if code := self._process.wait():
            self._said.seek(0)
            said = self._said.read().decode(errors="replace").split("\n")
            last = next((line for line in reversed(said) if line), "it said nothing")
            return f"the process that compiles kernels ended with {code}: {last}"
        try:
            kernels.select_isa()
        except kernels.KernelFaultError as error:
            return str(error)
        return ""

    def end(self) -> None:
        """End it, whether it is over or not."""
        self._process.kill()
        self._process.wait()
        self._said.close()


@contextmanager
def rehearsed(tasks: Callable[[], Sequence[Task]]) -> Iterator[Rehearsal | None]:
    """A rehearsal of tasks for as long as the block lasts, where no kernel is on disk; None where they are."""
    rehearsal = Rehearsal(tasks()) if is_cold() else None
    try:
        yield rehearsal
    finally:
        if rehearsal is not None:
            rehearsal.end()


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
