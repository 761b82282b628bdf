"""The page docs/server-rules.md says what happens: its programs are run, one after the other, and so is the example."""

import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from fsl_async import Adam, Task
from tests.support.page_programs import programs_of, run_programs

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "server-rules.md"


async def test_the_programs_of_the_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("server_rules_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert len(programs_of(PAGE)) == 7
    await run_programs(PAGE, module)


def test_the_task_file_of_the_page_is_one() -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    table = tomllib.loads(shown)["task"]
    task = msgspec.convert(table, Task)
    assert (task.apply, task.weights, task.optimizer) == ("weighted-mean", "examples", Adam(0.3))


def test_the_example_ends_near_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "fedavg.py"), run_name="__main__")
    distances = [float(line.rpartition(" ")[2]) for line in capsys.readouterr().out.splitlines()]
    assert len(distances) == 10
    assert distances[-1] < 0.1 < 1 < distances[0]
