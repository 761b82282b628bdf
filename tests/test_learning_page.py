"""The page docs/learning.md says what happens: its programs are run, one after the other."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "learning.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


async def test_the_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("learning_page")
    assert len(PROGRAMS) == 7
    text = PAGE.read_text(encoding="utf-8")
    for program in PROGRAMS:
        lines_before = text[: text.index(program)].count("\n") * "\n"
        code = compile(lines_before + program, str(PAGE), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        running = eval(code, module.__dict__)
        if inspect.iscoroutine(running):
            await running
    printed = capsys.readouterr().out.splitlines()
    shown = re.findall(r"print\(error\)  # (.*)", text)
    assert len(printed) == len(shown) == 3
    for line, said in zip(printed, shown, strict=True):
        assert said.removesuffix(" …") in line
