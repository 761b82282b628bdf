"""The pages learning.md, from-fedavg.md, bounds.md and pytorch.md of docs say what happens: their programs are run."""

import re
from importlib.util import find_spec
from pathlib import Path
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


needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="`make learn` installs PyTorch")


@pytest.mark.parametrize(
    ("name", "outputs"), [("from-fedavg.md", 2), ("bounds.md", 1), pytest.param("pytorch.md", 3, marks=needs_torch)]
)
async def test_the_programs_of_a_page_print_what_it_says(
    name: str, outputs: int, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page, module = ROOT / "docs" / name, ModuleType("page")
    blocks = guide.fenced(page.read_text(encoding="utf-8"))
    shown = [language for language, _ in blocks if language]
    assert (shown[-1], shown.count("text")) == ("text", outputs)
    for language, content in blocks:
        if language == "python":
            await run_program(content, page, module)
        elif language == "text":
            assert capsys.readouterr().out == content
    assert (tmp_path / "start.safetensors").exists() == (name == "pytorch.md")
