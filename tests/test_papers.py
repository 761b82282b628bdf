"""The files at the top that an open project needs: true, complete, and checked by what reads them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests import ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the extras `test` and `docs`")
TEMPLATES = ROOT / ".github" / "ISSUE_TEMPLATE"


def makefile() -> dict[str, str]:
    """The commands of each target of the Makefile, with its variables filled in."""
    text = (ROOT / "Makefile").read_text()
    variables = dict(re.findall(r"^(\w+) :?= (.*)$", text, re.MULTILINE))
    for _ in range(3):
        text = re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)
    return dict(re.findall(r"^([\w-]+):[^\n]*\n((?:\t[^\n]*\n)+)", text, re.MULTILINE))


def test_the_hooks_of_git_are_what_make_lint_runs_and_fetch_nothing():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == [line.strip() for line in makefile()["lint"].splitlines()]
    assert {hook["language"] for hook in repository["hooks"]} == {"system"}


def test_the_steps_of_ci_are_those_that_contributors_read():
    steps = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("## What CI runs")[2]
    assert re.findall(r"`make ([\w-]+)`", page) == steps
    assert set(re.findall(r"make ([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text())) <= makefile().keys()


def test_the_citation_is_of_the_paper_and_fits_its_schema():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    paper = citation["preferred-citation"]
    (title, names) = re.search(r"\*([^*]+)\* \(([^)]+)\)", (ROOT / "README.md").read_text()).groups()
    assert " ".join(title.split()) == paper["title"]
    assert names.split(", ") == [author["family-names"] for author in paper["authors"]]
    assert citation["license"] == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    checker = Path(sys.executable).with_name("check-jsonschema")
    if not checker.exists():
        pytest.skip("check-jsonschema is missing: it is in the extra `lint`")
    command = [checker, "--builtin-schema", "vendor.citation-file-format", ROOT / "CITATION.cff"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr


def test_every_issue_template_has_its_head_and_the_request_names_what_is_run():
    templates = sorted(TEMPLATES.glob("*.md"))
    assert len(templates) >= 2
    for template in templates:
        _, head, body = template.read_text().split("---\n", 2)
        assert yaml.safe_load(head).keys() == {"name", "about", "labels"}
        assert body.strip()
    named = re.findall(r"`make ([\w-]+)`", (ROOT / ".github" / "pull_request_template.md").read_text())
    assert named
    assert set(named) <= makefile().keys()


def test_papers_invent_no_person_and_no_address():
    for name in ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff"):
        assert not re.search(r"\w@\w", (ROOT / name).read_text()), name


def test_the_picture_of_a_round_loads_nothing_and_says_what_it_shows():
    source = (ROOT / "docs" / "images" / "round.svg").read_text()
    root = ElementTree.fromstring(source)
    assert root.find("{*}title").text
    assert "docs/images/round.svg" in (ROOT / "README.md").read_text()
    assert not re.search(r"(?:href|src|url\()\s*=?\s*[\"']?(?:https?:|//)", source)


def test_an_editor_s_lines_are_as_long_as_the_linter_s():
    settings = (ROOT / ".editorconfig").read_text()
    longest = int(re.search(r"max_line_length = (\d+)", settings)[1])
    assert longest == tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["line-length"]
