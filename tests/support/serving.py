"""`python -m parties` as a process of its own: what it says, its exit code and its JSON object."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import ROOT

ENDS_WITHIN = 240  # seconds for what should take a few, even if it has to compile; what this is to end is a hang


PLAIN = (
    "from fsl_async import kernels; kernels.select_isa('plain'); from parties.commands.application import main; main()"
)
"""The same program without kernels: to load them is most of what a server does that computes next to nothing."""


class Ended(NamedTuple):
    """How a process ended: its code, the JSON object that it printed, and what it said besides."""

    code: int
    said: Any
    words: str


class Process:
    """One of them in a folder.

    Args:
        folder: where it runs.
        words: its arguments.
        program: what this Python runs.
        within: the words that run a command where the process is to be; none for here.
        log: the file that what it says on stderr is added to; left out, one without a name.
        environment: further variables.
    """

    def __init__(
        self,
        folder: Path,
        *words: str,
        program: Sequence[str] = ("-m", "parties"),
        within: Sequence[str] = (),
        log: Path | None = None,
        **environment: str,
    ) -> None:
        self._log = log.open("ab+") if log else tempfile.TemporaryFile("ab+")  # noqa: SIM115 - closed by `end`
        self._begin = self._heard = self._log.seek(0, os.SEEK_END)
        self.child = subprocess.Popen(
            [*within, sys.executable, *program, *words, "--format", "json"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def words(self, begin: int | None = None) -> str:
        """What it has said so far."""
        begin = self._begin if begin is None else begin
        size = os.fstat(self._log.fileno()).st_size - begin
        return os.pread(self._log.fileno(), size, begin).decode(errors="replace")

    def says(self, pattern: str) -> str:
        """Wait for a line that matches, behind the one that was waited for last."""

        def line() -> str:
            for line in self.words(self._heard).splitlines(keepends=True):
                if not line.endswith("\n"):
                    return ""
                self._heard += len(line.encode())
                if re.search(pattern, line):
                    return line
            return ""

        return self._until(line, pattern)

    def until(self, pattern: str, times: int = 1) -> None:
        """Wait until so many lines of all that it has said match."""
        self._until(lambda: len(re.findall(pattern, self.words(), re.MULTILINE)) >= times, pattern)

    def _until(self, found: Callable[[], Any], pattern: str) -> Any:
        end = time.monotonic() + ENDS_WITHIN
        while True:
            is_over = self.child.poll() is not None or time.monotonic() > end
            if answer := found():
                return answer
            if is_over:
                pytest.fail(f"ended with {self.child.poll()} before it said {pattern!r}: {self.words()}")
            time.sleep(0.02)

    def ended(self) -> Ended:
        """Wait for its end."""
        out, _ = self.child.communicate(timeout=ENDS_WITHIN)
        return Ended(self.child.returncode, json.loads(out) if out.strip() else {}, self.words())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Ended:
        """Send it a signal, and wait for its end."""
        self.child.send_signal(number)
        return self.ended()

    def end(self) -> None:
        """It is killed if it still runs."""
        self.child.kill()
        self.child.communicate()
        self._log.close()


@contextmanager
def processes() -> Iterator[Callable[..., Process]]:
    """Starts processes that do not outlive the block."""
    started: list[Process] = []

    def start(folder: Path, *words: str, **options: Any) -> Process:
        started.append(Process(folder, *words, **options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.end()
