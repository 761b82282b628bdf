"""The pages docs/learning.md, docs/from-fedavg.md and docs/bounds.md say what happens: their programs are run."""

import re
from types import ModuleType

import pytest

from tests import ROOT
from tests.support import guide
from tests.support.page_programs import programs_of, run_program, run_programs

PAGE = ROOT / "docs" / "learning.md"


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


@pytest.mark.parametrize("name", ["from-fedavg.md", "bounds.md"])
async def test_the_programs_of_a_page_print_what_it_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    page, module = ROOT / "docs" / name, ModuleType("page")
    blocks = guide.fenced(page.read_text(encoding="utf-8"))
    assert [language for language, _ in blocks if language][-1] == "text"
    for language, content in blocks:
        if language == "python":
            await run_program(content, page, module)
        elif language == "text":
            assert capsys.readouterr().out == content
