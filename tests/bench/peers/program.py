"""A program that somebody has built with another library: how it is called, and what it must say.

    PROGRAM TREES DEPTH FOLDER

evaluates TREES trees of 2^DEPTH leaves once, on one thread, writes both servers' shares into FOLDER and prints one JSON
line; docs/benchmarks/peers/README.md has it in full. Each turn is one process.

Rules: whatever a program does wrong is an error that names it; no program outlives its turn.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec
import numpy as np

from fsl_async.errors import MisuseError
from fsl_async.foreign_text import printable
from tests.bench.peers.shares import LEAF_BYTES, Group, Shares, what_is_wrong

OURS = "fsl-async"
READ = 64 << 10
"""Bytes that are read of what a program has printed."""

SHOWN = 200
"""Characters of that which an error repeats."""

_NAME = re.compile(r"[\w.+-]{1,40}")
_SINGLE = {"OMP_NUM_THREADS": "1"}
"""Some libraries start threads of their own unless they are told not to."""


class _Said(msgspec.Struct, forbid_unknown_fields=True):
    """A program's line."""

    leaves: int
    seconds: float
    group: Group
    value: str


@dataclass(frozen=True)
class Turn:
    """What one turn has measured.

    Attributes:
        leaves: that were evaluated.
        seconds: in which.
    """

    leaves: int
    seconds: float


@dataclass(frozen=True)
class Program:
    """A library's name, and the program that was built with it."""

    name: str
    path: Path

    def turn(self, trees: int, depth: int, patience: float) -> Turn:
        """Run it once, and check what it says and both servers' shares.

        Args:
            trees: how many.
            depth: of each; it has 2^depth leaves.
            patience: seconds until it is given up.

        Raises:
            MisuseError: it cannot be run, fails, takes too long, says something else than one line of what is
                expected, or its shares do not add up.
        """
        with tempfile.TemporaryDirectory(prefix="fsl-bench-peer-") as name:
            folder = Path(name)
            said = self._read(self._run(folder, trees, depth, patience))
            leaves = trees << depth
            if said.leaves != leaves:
                self._refuse(f"it says that it has evaluated {said.leaves:,} leaves, and was asked for {leaves:,}")
            if not 0 < said.seconds <= patience:
                self._refuse(f"it says that it took {said.seconds} seconds")
            shares = [self._share(folder / f"{server}", trees, 1 << depth) for server in (0, 1)]
            wrong = what_is_wrong(shares[0], shares[1], said.group, self._value(said.value))
        if wrong:
            self._refuse(wrong)
        return Turn(leaves, said.seconds)

    def _run(self, folder: Path, trees: int, depth: int, patience: float) -> bytes:
        """What it has printed. Files take it, because a pipe would wait for whatever the program has started."""
        command = [str(self.path.absolute()), str(trees), str(depth), str(folder)]
        out, err = folder / "stdout", folder / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            try:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=os.environ | _SINGLE,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                self._refuse(f"{self.path} cannot be run: {error.strerror}")
            try:
                code = process.wait(patience)
            except subprocess.TimeoutExpired:
                self._refuse(f"it has not ended after {patience:g} seconds, and was stopped")
            finally:
                _end(process)
        if code:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            self._refuse(f"it has failed with {how}: {_shown(_head(err)) or 'it says nothing'}")
        return _head(out)

    def _read(self, printed: bytes) -> _Said:
        lines = printed.splitlines()
        if len(lines) != 1:
            self._refuse(f"one line expected, and it has printed {len(lines)}: {_shown(printed)}")
        try:
            return msgspec.json.decode(lines[0], type=_Said)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            self._refuse(f"its line is not what is expected ({error}): {_shown(printed)}")

    def _share(self, path: Path, trees: int, leaves: int) -> Shares:
        expected = trees * leaves * LEAF_BYTES
        found = path.stat().st_size if path.is_file() else 0
        if found != expected:
            self._refuse(f"server {path.name}'s shares have {found:,} bytes, not {expected:,}")
        return np.fromfile(path, dtype="<u8").astype(np.uint64, copy=False).reshape(trees, leaves, 2)

    def _value(self, digits: str) -> Shares:
        try:
            return np.frombuffer(bytes.fromhex(digits), dtype="<u8").astype(np.uint64).reshape(2)
        except ValueError:
            self._refuse(f"its value must be 32 hexadecimal digits, not {_shown(digits.encode())!r}")

    def _refuse(self, reason: str) -> NoReturn:
        raise MisuseError(f"--peer {self.name}: {reason}")


def programs_of(words: list[str]) -> tuple[Program, ...]:
    """The programs that `--peer NAME=PROGRAM` names.

    Raises:
        MisuseError: it is of another form, a name is there twice or is ours, or there is no such program.
    """
    found: dict[str, Program] = {}
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or not path:
            raise MisuseError(f"--peer: NAME=PROGRAM expected, got {word!r}")
        if name in found or name == OURS:
            raise MisuseError(f"--peer {name}: this name is there already")
        program = Program(name, Path(path))
        if not (program.path.is_file() and os.access(program.path, os.X_OK)):
            raise MisuseError(
                f"--peer {name}: {path} is no program that can be run; docs/benchmarks/peers says how to build it"
            )
        found[name] = program
    return tuple(found.values())


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program and whatever it has started."""
    with suppress(ProcessLookupError):  # it has ended, and left nothing
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(READ)


def _shown(said: bytes) -> str:
    return printable(" ".join(said.decode("utf-8", errors="replace").split())[:SHOWN])
