"""Commands that the tests run in their own process, and a town for clients that are not on trio."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `fsl-async` with some words, in this process: its exit code, and what it said on stdout and stderr."""
    from parties.commands.application import main

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fsl-async", *words])
        with pytest.raises(SystemExit) as ending:
            main()
        said = capsys.readouterr()
        return ending.value.code, said.out, said.err

    return run


@pytest.fixture
def answer(in_process: Run) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """The same with `--format json`: its exit code, its JSON object, or an empty one, and what it said on stderr."""

    def run(*words: str) -> tuple[int, dict[str, Any], str]:
        code, out, error = in_process(*words, "--format", "json")
        return code, json.loads(out) if out else {}, error

    return run


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Any]:
    """Both servers, in a thread of their own."""
    from tests.support.town import Town

    with Town(tmp_path) as town:
        yield town
