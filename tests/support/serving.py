"""`python -m parties` as a process of its own: what it says, its exit code and its JSON object."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import ROOT

ENDS_WITHIN = 180  # seconds for a process that may have to compile; what this is to end is a hang


PLAIN = (
    "from fsl_async import kernels; kernels.select_isa('plain'); from parties.commands.application import main; main()"
)
"""The same program without kernels: to load them is most of what a server does that computes next to nothing."""


class Process:
    """One of them in a folder, with all that it says on stderr."""

    def __init__(self, folder: Path, *words: str, program: tuple[str, ...] = ("-m", "parties"), **environment: str):
        self.heard: list[str] = []
        self.child = subprocess.Popen(
            [sys.executable, *program, *words, "--format", "json"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.watchdog = threading.Timer(ENDS_WITHIN, self.child.kill)
        self.watchdog.start()

    def says(self, pattern: str) -> str:
        """Read up to a line that matches."""
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.heard.append(line)
            if re.search(pattern, line):
                return line
        pytest.fail(f"ended with {self.child.wait()} before it said {pattern!r}: {''.join(self.heard)}")

    def ended(self) -> tuple[int, dict, str]:
        """Its exit code, its JSON object, and all that it has said."""
        out, error = self.child.communicate(timeout=ENDS_WITHIN)
        return self.child.returncode, json.loads(out) if out else {}, "".join(self.heard) + error


@contextmanager
def processes() -> Iterator[Callable[..., Process]]:
    """Starts processes that do not outlive the block."""
    started: list[Process] = []

    def start(folder: Path, *words: str, **options: object) -> Process:
        started.append(Process(folder, *words, **options))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.watchdog.cancel()
            process.child.kill()
            process.child.communicate()
