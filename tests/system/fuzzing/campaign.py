"""Parsers fuzzed one after the other, each in a process of its own, and what is told of it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha1
from pathlib import Path

from tests import ROOT

from .engine import ENDED
from .parser import Parser

RESIDENT_MIB = 1_536
ATTEMPTS = 2
"""A process that the alarm of its timeout ends while it writes down what failed leaves nothing, and is run again."""

_STATUS = re.compile(r"#(\d+)\s+\w+.*?(?:cov: (\d+) ft: (\d+) )?corp: (\d+)/.*rss: (\d+)Mb")
_UNITS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
_REASON = re.compile(r"=== Uncaught Python exception|=== Timeout|ERROR: libFuzzer")

Heard = Callable[[int], None]
"""Told how many executions there were."""


@dataclass(frozen=True)
class Plan:
    """How one parser is fuzzed.

    Attributes:
        corpus: the folder of its inputs, to which new ones are added.
        artifacts: the folder for inputs that it failed on.
        runs: executions; 0 for as many as there are seconds for.
        seconds: in all; 0 for as many as it takes.
        timeout: seconds that one input may take.
        seed: of libFuzzer's choices; 0 for one that it draws.
    """

    corpus: Path
    artifacts: Path
    runs: int
    seconds: float
    timeout: int
    seed: int


@dataclass(frozen=True)
class Failure:
    """An input that a parser must not fail on, and did.

    Attributes:
        input: where it is.
        output: the end of the process's output.
    """

    input: Path
    output: str

    @property
    def data(self) -> bytes:
        """The input."""
        return self.input.read_bytes()


@dataclass(frozen=True)
class Tally:
    """What came of one parser.

    Attributes:
        name: the parser's.
        runs: executions.
        seconds: that they took, without the start of the process.
        coverage: edges of instrumented code reached, and `features`, edges with their counts.
        corpus: inputs kept because they reached something new.
        resident: MiB of memory at the start and at the end.
        failures: what went wrong; at most one input, for then the run ends.
    """

    name: str
    runs: int = 0
    seconds: float = 0.0
    coverage: int = 0
    features: int = 0
    corpus: int = 0
    resident: tuple[int, int] = (0, 0)
    failures: tuple[Failure, ...] = field(default=())

    @property
    def per_second(self) -> float:
        """Executions per second."""
        return self.runs / self.seconds if self.seconds else 0.0


def shares(parsers: list[Parser], runs: int) -> dict[str, int]:
    """Divide executions over parsers by their shares; at least one for each."""
    total = sum(parser.share for parser in parsers)
    return {parser.name: max(1, round(runs * parser.share / total)) for parser in parsers}


class Engine:
    """The process that fuzzes one parser after the other; a context manager."""

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self._scratch = tempfile.TemporaryDirectory(
            prefix="fsl-async-fuzzing-", dir=memory if memory.is_dir() else None
        )
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.fuzzing.engine"],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": self._scratch.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # libFuzzer speaks on one, atheris on the other
            text=True,
            errors="replace",
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._scratch.cleanup()

    def fuzz(self, parser: Parser, plan: Plan, heard: Heard) -> Tally:
        """Fuzz one parser."""
        plan.corpus.mkdir(parents=True, exist_ok=True)
        plan.artifacts.mkdir(parents=True, exist_ok=True)
        for sample in parser.samples:
            (plan.corpus / sha1(sample, usedforsecurity=False).hexdigest()).write_bytes(sample)
        for _ in range(ATTEMPTS):
            before = _written(plan.artifacts)
            told = _Told(parser.name, heard)
            status = self._run([parser.name, *self._options(parser, plan), str(plan.corpus)], told)
            if status == 0:
                return told.tally
            if left := sorted(_written(plan.artifacts) - before):
                failure = Failure(_minimised(parser.name, left[0][0]), "".join(told.reason[:30]))
                return replace(told.tally, failures=(failure,))
        raise RuntimeError(f"the fuzzer of {parser.name} ended with {status}:\n{''.join(told.last)}")

    def _run(self, arguments: list[str], told: _Told) -> int:
        """Have a parser fuzzed, and listen until that is over; returns its exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(ENDED):
                told.end()
                return int(line.removeprefix(ENDED))
            told.hear(line)
        raise RuntimeError(f"the fuzzing engine has ended:\n{''.join(told.last)}")

    def _options(self, parser: Parser, plan: Plan) -> list[str]:
        dictionary = Path(self._scratch.name) / "tokens"
        dictionary.write_text("".join(f'"{_escaped(word)}"\n' for word in parser.tokens), encoding="ascii")
        return [
            f"-max_len={parser.longest}",
            f"-timeout={plan.timeout}",
            f"-rss_limit_mb={RESIDENT_MIB}",
            f"-artifact_prefix={plan.artifacts}/{parser.name}-",
            "-print_final_stats=1",
            f"-seed={plan.seed}",
            *([f"-dict={dictionary}"] if parser.tokens else []),
            *([f"-runs={plan.runs}"] if plan.runs else []),
            *([f"-max_total_time={max(1, round(plan.seconds))}"] if plan.seconds else []),
        ]


class _Told:
    """What libFuzzer has said of one parser.

    Attributes:
        tally: the figures in it.
        reason: its output from the first line about the failure on.
        last: its last lines.
    """

    def __init__(self, name: str, heard: Heard) -> None:
        self.tally = Tally(name)
        self.reason: list[str] = []
        self.last = deque[str](maxlen=30)
        self._heard = heard
        self._begun = 0.0

    def hear(self, line: str) -> None:
        self.last.append(line)
        if status := _STATUS.search(line):
            self._begun = self._begun or time.monotonic()
            self.tally = _moved(self.tally, status)
            self._heard(self.tally.runs)
        elif units := _UNITS.search(line):
            self.tally = replace(self.tally, runs=int(units[1]))
        if self.reason or _REASON.search(line):
            self.reason.append(line)

    def end(self) -> None:
        if self._begun:
            self.tally = replace(self.tally, seconds=time.monotonic() - self._begun)


def _moved(tally: Tally, status: re.Match[str]) -> Tally:
    runs, coverage, features, corpus, now = (int(number or 0) for number in status.groups())
    start = tally.resident[0] or now
    return replace(
        tally,
        runs=runs,
        coverage=max(coverage, tally.coverage),
        features=max(features, tally.features),
        corpus=corpus,
        resident=(start, now),
    )


def _written(folder: Path) -> set[tuple[Path, int]]:
    """The files in a folder and when they were written: an input that fails again is written again."""
    return {(path, path.stat().st_mtime_ns) for path in folder.iterdir()}


def _minimised(name: str, found: Path) -> Path:
    """A shorter input that fails as well, where there is one; one that takes too much time or memory is left alone."""
    if "-crash-" not in found.name:
        return found
    shorter = found.with_name(f"{found.name}-minimised")
    command = [sys.executable, "-m", "tests.system.fuzzing.minimise", name, str(found), str(shorter)]
    subprocess.run(command, cwd=ROOT, check=False, stderr=subprocess.DEVNULL)
    return shorter if shorter.exists() else found


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def command_to_replay(name: str, found: Path) -> str:
    """The command that gives an input to its parser again."""
    return shlex.join(["python", "-m", "tests.system.fuzzing", "--replay", name, str(found)])
