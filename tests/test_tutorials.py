"""The tutorials work as they are written: every block is executed, and prints what the page says."""

import ast
import asyncio
import inspect
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from parties.settings.writing import free_addresses
from tests import ROOT
from tests.support import guide
from tests.system.deployment.hosts import Shell
from tests.system.deployment.walkthrough import Written, steps, walk

TUTORIALS = ROOT / "docs" / "tutorials"


def test_every_tutorial_is_executed_here():
    assert {path.name for path in TUTORIALS.iterdir()} == {"first-round.md", "over-tcp.md"}


def test_the_first_round_prints_what_the_page_says(capsys):
    session: dict[str, object] = {}
    blocks = guide.fenced((TUTORIALS / "first-round.md").read_text(encoding="utf-8"))
    printed, compared = "", 0
    for language, content in blocks:
        match language:
            case "python":
                exec(compile(content, "first-round.md", "exec"), session)
                printed = capsys.readouterr().out
            case "text":
                expected = re.compile(".*".join(map(re.escape, content.strip().split("…"))))
                assert expected.fullmatch(printed.strip()), f"{content!r} is shown, and this was printed:\n{printed}"
                compared += 1
    assert compared == 3


def test_the_page_of_the_doors_prints_the_same_at_each_of_them(capsys):
    """A block that awaits outside a function is a notebook's cell."""
    session: dict[str, object] = {}
    printed: list[str] = []
    for language, content in guide.fenced((ROOT / "docs" / "fronts.md").read_text(encoding="utf-8")):
        if language == "python":
            code = compile(content, "fronts.md", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, session))
            else:
                exec(code, session)
        elif language == "text":
            assert capsys.readouterr().out == content
            printed.append(content)
    assert len(printed) == 4
    assert len(set(printed)) == 1


class OneMachine:
    """One terminal, in which everything is typed."""

    def __init__(self, folder: Path) -> None:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "TERM": "dumb"}
        self.shells = {"you": Shell("you", folder, environment)}

    def carry(self, path: str, giver: str, taker: str) -> None:
        """Nobody sends anything: all files are in one folder."""
        raise AssertionError(f"{path} is sent from {giver} to {taker}")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="the page is typed into bash")
def test_servers_and_clients_over_tcp_work_as_the_page_says(tmp_path):
    text = (TUTORIALS / "over-tcp.md").read_text(encoding="utf-8")
    for port, address in zip((7000, 7001), free_addresses(2), strict=True):
        text = text.replace(f"127.0.0.1:{port}", address)
    machine = OneMachine(tmp_path)
    try:
        walk(steps(text), machine)
    finally:
        machine.shells["you"].close()
    assert {step.file for step in steps(text) if isinstance(step, Written)} < {path.name for path in tmp_path.iterdir()}
