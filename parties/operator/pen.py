"""What writes the log's lines: a thread of its own, so that whoever reads them slowly, or not at all, stops nobody.

Lines wait in a queue of bounded length; those that find it full are lost, and whoever writes them is told. Where nobody
reads any more (the pipe is closed, the terminal gone), lines are lost in silence: a server does not end because nobody
listens.
"""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from contextlib import suppress
from io import UnsupportedOperation
from typing import Protocol, TextIO

__all__ = ["MOST_WAITING", "Pen", "ThreadedPen", "pen_for"]

MOST_WAITING = 2**22
"""Bytes of lines that wait to be written."""

LAST_WORDS = 2.0
"""Seconds that the end waits for lines to be written."""


class Pen(Protocol):
    """Writes lines."""

    def write(self, line: str) -> bool:
        """Write a line, now or soon, without waiting; whether that could be done."""

    def finish(self) -> None:
        """Wait a little until all lines are written; further ones may follow."""


class _NoPen:
    """Writes nothing: there is nowhere to write to."""

    def write(self, line: str) -> bool:
        """Nothing."""
        return True

    def finish(self) -> None:
        """Nothing."""


class _PlainPen:
    """Writes to something in memory."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, line: str) -> bool:
        """Write a line."""
        self._stream.write(line)
        return True

    def finish(self) -> None:
        """Nothing is left to be written."""


class ThreadedPen:
    """Writes to a file, pipe or terminal in a thread of its own.

    Args:
        descriptor: of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)

    def write(self, line: str) -> bool:
        """Queue a line; whether there was room for it."""
        data = line.encode(errors="backslashreplace")
        with self._changed:
            if self._waiting + len(data) > MOST_WAITING:
                return False
            self._lines.append(data)
            self._waiting += len(data)
            self._changed.notify_all()
        if not self._thread.is_alive():
            self._thread.start()
        return True

    def finish(self) -> None:
        """Wait a little until all lines are written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, LAST_WORDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                data = self._lines.popleft()
            with suppress(OSError):  # nobody reads any more
                self._put(data)
            with self._changed:
                self._waiting -= len(data)
                self._changed.notify_all()

    def _put(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # whoever shares a pipe or terminal may have made it so
                select.select([], [self._descriptor], [])


def pen_for(stream: TextIO | None) -> Pen:
    """What writes to a stream."""
    if stream is None:
        return _NoPen()
    try:
        return ThreadedPen(stream.fileno())
    except (AttributeError, UnsupportedOperation):
        return _PlainPen(stream)
    except ValueError:  # it is closed
        return _NoPen()
