"""docs/extending.md: what it shows works. Parties over the page's transport: tests/parties/deployment."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests import ROOT
from tests.support import guide
from transport.testing import CASES
from transport.testing.__main__ import main

PAGE = "docs/extending.md"


@pytest.fixture(scope="module")
def shown() -> ModuleType:
    """The page's transport and its test, as a module of a project."""
    module = ModuleType("shown_transport")
    for code in guide.blocks(PAGE, "python")[:2]:
        exec(compile(code, PAGE, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_transport_of_the_page_does_what_every_one_must(shown, case, tmp_path):
    case.run(shown.AbstractSockets, f"{tmp_path.name}-{case}"[:100])


def test_the_test_of_the_page_is_one(shown):
    assert shown.test_abstract_sockets.pytestmark[0].args[1] is CASES


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no_such:Thing", "x"], "cannot be made .ModuleNotFoundError: .*MODULE:NAME"),
        (["transport:NoSuchThing", "x"], "cannot be made .AttributeError: .*NoSuchThing"),
        (["transport", "x"], "cannot be made .*MODULE:NAME"),
        (["json:loads", "x"], "cannot be made .TypeError: .*needs no arguments"),
        (["builtins:dict", "x"], "is no transport.Transport"),
        (["transport:MemoryNetwork", "x", "--only", "nosuch"], "no case has 'nosuch' in its name"),
    ],
)
def test_the_command_says_what_to_do_about_what_is_no_transport(arguments, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert re.search(told, " ".join(capsys.readouterr().err.split()))


# ---- a protocol


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page's protocol."""
    for code in guide.blocks(PAGE, "python"):
        head, _, _ = code.partition("\n")
        if head.startswith("# file: "):
            (tmp_path / head.removeprefix("# file: ")).write_text(code, encoding="utf-8")
    return tmp_path


def run(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_protocol_of_the_page_runs_in_memory_and_over_tcp(project):
    assert run(project, "run.py", ".") == "[5, 5]\n[5, 5]\n"


def test_the_protocol_of_the_page_passes_its_tests_and_looks_as_shown(project):
    output = run(project, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "-W", "error", "test_agreement.py")
    assert "141 passed" in output
    (chart,) = guide.blocks(PAGE, "text")
    assert chart in output, "if the package draws otherwise now, paste what it prints"
