"""Writes the log's lines in a thread of its own, so that a slow or absent reader of the log delays nothing.

Lines wait in a queue of bounded length. A line that finds the queue full is lost, and `write` says so. On a full disk
they wait for room. Once the reader is gone (the pipe is closed, the terminal hung up), lines are lost silently: a
server does not end because nobody reads its log.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from contextlib import suppress
from io import UnsupportedOperation
from typing import TextIO, TypeAlias

from parties.files.disk import NO_ROOM, REMEDIES

MOST_WAITING = 2**22
"""The most bytes of lines that wait to be written."""

FINISH_SECONDS = 2.0
"""How long `finish` waits for lines to be written."""

ROOM_SECONDS = 0.5
"""How long to wait, on a full disk, before a line is written again."""


class _MemoryWriter:
    """Writes to a stream in memory, or nowhere where there is none."""

    problem = ""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, line: str) -> bool:
        """Write a line."""
        if self._stream is not None:
            self._stream.write(line)
        return True

    def finish(self) -> None:
        """Do nothing: no line waits."""


class ThreadedWriter:
    """Writes to a file, pipe or terminal in a thread of its own.

    Attributes:
        problem: why lines wait, where the system says that there is no room for them; else empty.
    """

    def __init__(self, descriptor: int) -> None:
        self.problem = ""
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="log", daemon=True)

    def write(self, line: str) -> bool:
        """Queue a line; returns whether there was room for it: a line without room is lost."""
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
        """Wait a short time until all lines are written."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, FINISH_SECONDS)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                data = self._lines.popleft()
            with suppress(OSError):  # the reader is gone
                self._put(data)
            with self._changed:
                self._waiting -= len(data)
                self._changed.notify_all()

    def _put(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
                self.problem = ""
            except BlockingIOError:  # another process that shares the pipe or terminal may have made it non-blocking
                select.select([], [self._descriptor], [])
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                self.problem = REMEDIES[error.errno]
                time.sleep(ROOM_SECONDS)


LogWriter: TypeAlias = _MemoryWriter | ThreadedWriter
"""Writes a line now or soon, without waiting."""


def writer_for(stream: TextIO | None) -> LogWriter:
    """The writer for a stream, which may be None or closed."""
    try:
        return _MemoryWriter(None) if stream is None else ThreadedWriter(stream.fileno())
    except (AttributeError, UnsupportedOperation):
        return _MemoryWriter(stream)
    except ValueError:  # it is closed
        return _MemoryWriter(None)
