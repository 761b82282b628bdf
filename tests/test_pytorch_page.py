"""The page docs/pytorch.md prints what it says: its programs are run, one after the other."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests import ROOT
from tests.support import guide
from tests.support.page_programs import run_program

pytest.importorskip("torch", reason="`make learn` installs PyTorch")

PAGE = ROOT / "docs" / "pytorch.md"


async def test_the_programs_of_the_page_print_what_it_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, compared = ModuleType("pytorch_page"), 0
    for language, content in guide.fenced(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            await run_program(content, PAGE, module)
        elif language == "text":
            assert capsys.readouterr().out == content
            compared += 1
    assert compared == 3
    assert (tmp_path / "start.safetensors").exists()
