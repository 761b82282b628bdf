"""The page docs/experiments.md says what happens: its programs are run, one after the other."""

import json
from types import ModuleType

import pytest

from tests import ROOT
from tests.support.page_programs import programs_of, run_programs

PAGE = ROOT / "docs" / "experiments.md"


async def test_the_programs_of_the_page_run_and_learn(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(programs_of(PAGE)) == 3
    await run_programs(PAGE, ModuleType("experiments_page"))
    curve = json.loads(capsys.readouterr().out)
    assert 0.1 < curve[-1] < 0.3 < 0.8 < curve[0]
