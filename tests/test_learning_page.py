"""The page docs/learning.md says what happens: its programs are run, one after the other."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.page_programs import programs_of, run_programs

PAGE = Path(__file__).parents[1] / "docs" / "learning.md"


async def test_the_programs_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    module = ModuleType("learning_page")
    assert len(programs_of(PAGE)) == 7
    text = PAGE.read_text(encoding="utf-8")
    await run_programs(PAGE, module)
    printed = capsys.readouterr().out.splitlines()
    shown = re.findall(r"print\(error\)  # (.*)", text)
    assert len(printed) == len(shown) == 3
    for line, said in zip(printed, shown, strict=True):
        assert said.removesuffix(" …") in line
