"""The page docs/pytorch.md prints what it says: its programs are run, one after the other."""

from __future__ import annotations

import ast
import inspect
from types import ModuleType

import pytest

from tests import ROOT
from tests.support import guide

pytest.importorskip("torch", reason="`make learn` installs PyTorch")


async def test_the_programs_of_the_page_print_what_it_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, compared = ModuleType("pytorch_page"), 0
    for language, content in guide.fenced((ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8")):
        if language == "python":
            code = compile(content, "pytorch.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, module.__dict__)
            if inspect.iscoroutine(running):
                await running
        elif language == "text":
            assert capsys.readouterr().out == content
            compared += 1
    assert compared == 3
    assert (tmp_path / "start.safetensors").exists()
