"""What the documents show works: every example runs, and so does the code in the README."""

import os
import re
import runpy
import shutil
import subprocess
import sys

import pytest

from tests import ROOT
from tests.support import guide
from tests.support.cases import in_turn

EXAMPLES = ROOT / "examples"
LONGEST = 50  # lines that are not blank
PYTEST = "-m pytest -q -p no:cacheprovider -p fsl_async.pytest_plugin -W error"
NEEDS = {"cluster.py": "distributed"}
"""What an example needs beside the package itself."""


def names(pattern: str) -> list[str]:
    return sorted(path.name for path in EXAMPLES.glob(pattern))


TESTS = names("*_test.py")
TESTED = {name.replace("_test.py", ".py") for name in TESTS}
"""Examples whose use is shown by a test among the examples."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in NEEDS else [])  # a cluster is four processes of Dask
        for name in names("*.py")
        if name not in {*TESTS, *TESTED}
    ],
)
def test_an_example_runs_and_says_something(name, capsys, monkeypatch):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{name} needs it, and it is not installed")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert capsys.readouterr().out.strip()


def test_the_tests_among_the_examples_pass_under_pytest(tmp_path):
    for name in TESTS:
        shutil.copy(EXAMPLES / name, tmp_path)
    command = [sys.executable, *PYTEST.split(), *TESTS]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(EXAMPLES)])}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


@in_turn("path", sorted([*EXAMPLES.glob("*.py"), *EXAMPLES.glob("sealed_bids/*.py")]))
def test_an_example_is_short_and_says_what_it_shows(path):
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    assert lines[0].startswith('"""')
    assert len(lines) <= LONGEST


@pytest.fixture
def folder(tmp_path):
    copied = shutil.copytree(EXAMPLES / "sealed_bids", tmp_path / "sealed_bids")
    shutil.rmtree(copied / "__pycache__", ignore_errors=True)
    return copied


@pytest.mark.parametrize("command", ["over_tcp.py", f"{PYTEST} auction_test.py"])
def test_a_protocol_of_one_s_own_runs_and_passes_its_tests(command, folder):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^(64 passed|sold to ann for 30)", done.stdout, re.MULTILINE)


# ---- the README


def test_the_code_in_the_readme_prints_what_the_readme_says(capsys):
    (code,) = guide.blocks("README.md", "python")
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out.strip()
    assert printed
    assert f"prints `{printed}`" in (ROOT / "README.md").read_text(encoding="utf-8")


PAPERS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md"]
DOCUMENTS = [*PAPERS, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
REFERENCE = ("commands", "fsl_async", "parties", "parties.aio", "parties.testing", "transport")
NOTEBOOKS = ("notebook", "learning-notebook", "recommender")
MADE_WITH_THE_SITE = {f"docs/{name}.md" for name in (*NOTEBOOKS, *(f"reference/{name}" for name in REFERENCE))}


@in_turn("document", DOCUMENTS)
def test_every_link_between_documents_leads_somewhere(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    links = [target for target in re.findall(r"\]\(([^)\s]+)[^)]*\)", prose) if "://" not in target]
    assert document != "README.md" or len(links) >= 8
    for target in links:
        name, _, anchor = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        if os.path.relpath(os.path.normpath(path), ROOT) in MADE_WITH_THE_SITE:
            continue
        assert path.exists(), f"{document} links to {target}"
        assert not anchor or anchor in guide.anchors(path.read_text(encoding="utf-8")), f"{document} links to {target}"


def test_every_decision_has_its_number_and_its_three_parts():
    records = sorted((ROOT / "docs" / "adr").glob("*.md"))
    assert [int(record.name[:4]) for record in records] == list(range(1, len(records) + 1))
    for record in records:
        lines = record.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {record.name[:4]} ")
        assert [line for line in lines if line.startswith("## ")] == ["## Context", "## Decision", "## Consequences"]
        assert len(lines) <= 60, record.name


def test_the_commands_of_the_readme_exist():
    from parties.commands.application import app

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"fsl-async (\w+)", text)) - {"is"}
    assert named <= set(app)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"make (\w+)", text):
        assert f"\n{target}:" in makefile
