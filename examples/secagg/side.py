"""One side in a process of its own: `python -m examples.secagg.side ours|secaggplus`, asked by `run`.

Every line of stdin is one question, a JSON list of a function's name and its arguments; every line of stdout is the
answer. Whatever the side's libraries print goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from examples.secagg.cases import Case, Figures

ROOT = Path(__file__).resolve().parents[2]
WARM = Case(2**10, 100)


class SideFailedError(Exception):
    """The process of one side could not be started, or has failed; the message says why."""


class Side:
    """A side that runs elsewhere.

    Args:
        module: `ours` or `secaggplus`.
        python: the interpreter of its environment.
        environment: variables of its process.
        remedy: what to do where the environment is missing.
    """

    def __init__(self, module: str, python: Path, environment: Mapping[str, str], remedy: str) -> None:
        if not python.exists():
            raise SideFailedError(f"{python} does not exist: {remedy}")
        self._remedy = remedy
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [str(python), "-m", "examples.secagg.side", module],
            cwd=ROOT,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, function: str, *arguments: Any) -> Any:
        """The answer to one question.

        Raises:
            SideFailedError: the side's process failed; its own words are on stderr.
        """
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps([function, *arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and the next line says so
        answer = self._process.stdout.readline()
        if not answer:
            raise SideFailedError(f"{' '.join(map(str, self._process.args))} failed, see above; {self._remedy}")  # type: ignore[union-attr]
        return json.loads(answer)

    def measure(self, case: Case, *arguments: Any) -> Figures:
        """One round."""
        return Figures(**self.ask("measure", asdict(case), *arguments))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with self._process:  # which closes the pipes, and waits: a side ends with its questions
            if error is not None:
                self._process.kill()


def answer(module: Any, function: str, arguments: Sequence[Any]) -> Any:
    """One answer, ready for JSON."""
    if function != "measure":
        return getattr(module, function)()
    case, *others = arguments
    return asdict(module.measure(Case(**case), *others))


def main(name: str) -> None:
    """Answer until there are no more questions."""
    answers, sys.stdout = sys.stdout, sys.stderr
    module = importlib.import_module(f"examples.secagg.{name}")
    measure: Callable[[Case], Figures] = module.measure
    measure(WARM)
    for line in sys.stdin:
        function, *arguments = json.loads(line)
        print(json.dumps(answer(module, function, arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
