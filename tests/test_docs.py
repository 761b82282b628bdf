"""Documents keep up with the code: generated pages, and what sources and pages cite."""

import ast
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fsl_async import Ring, Sparse, Task, protocols
from parties import simulate
from parties.testing.machines import machines
from tests import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate_machines.py"))


def test_the_page_of_the_machines_is_up_to_date(generator: dict[str, Any]) -> None:
    written = (DOCS / "machines.md").read_text(encoding="utf-8")
    assert written == generator["page"](), "run `make docs`"


def test_every_machine_state_and_event_stands_on_the_page(generator: dict[str, Any]) -> None:
    assert machines().keys() >= {name for name in protocols.__all__ if name not in ("client", "ending", "machine")}
    for name, machine in machines().items():
        section = generator["section"](name, machine)
        assert section.count("```mermaid") == 1
        for state in machine.ACCEPTS:
            assert section.count(f"\n| `{state.__name__}` | {state.__doc__.splitlines()[0]} |") == 1
        for (source, event), targets in machine.TRANSITIONS.items():
            assert f"\n| `{event.__name__}`" in section
            for target in targets:
                arrows = [
                    line for line in section.splitlines() if f"    {source.__name__} --> {target.__name__}: " in line
                ]
                assert len(arrows) == 1
                assert event.__name__ in arrows[0].partition(": ")[2].split(", ")


def test_every_test_that_the_review_names_exists() -> None:
    written = (DOCS / "security-review.md").read_text(encoding="utf-8")
    named = re.findall(r"(tests/[\w/]+\.py)(?:::(\w+))?", written)
    assert len(named) > 30
    for path, function in named:
        source = (DOCS.parent / path).read_text(encoding="utf-8")
        assert f"def {function}" in source


# ---- sections that are cited

SOURCES = ("fsl_async", "transport", "parties", "tests", "examples", "docs")
NUMBERS = r"(?:§+ ?|sections? )\d+(?:(?:, | and | to )(?:§ ?)?\d+)*"
CITED = {
    "design.md": re.compile(rf"\b[Dd]esign(?:\.md)?\W{{1,4}}({NUMBERS})"),
    "security.md": re.compile(rf"\bsecurity\.md\W{{1,4}}({NUMBERS})"),
}


def sources() -> Iterator[tuple[str, str]]:
    """Every source and page, with line ends and comment signs taken out of running text."""
    for folder in SOURCES:
        for path in sorted((DOCS.parent / folder).rglob("*")):
            if path.suffix in (".py", ".md"):
                text = path.read_text(encoding="utf-8")
                yield str(path.relative_to(DOCS.parent)), re.sub(r"\s*\n[\s#>|*]*", " ", text)


@pytest.mark.parametrize("page", CITED)
def test_every_section_that_is_cited_exists(page: str) -> None:
    headings = re.findall(r"^## (\d+)\.? ", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [str(number + 1) for number in range(len(headings))]
    found = 0
    for source, text in sources():
        for citation in CITED[page].finditer(text):
            found += 1
            missing = set(re.findall(r"\d+", citation[1])) - set(headings)
            assert not missing, f"{source} cites {citation[0]!r}"
    assert found >= 5


def test_every_section_of_the_paper_that_is_cited_is_on_the_page_of_the_paper() -> None:
    headings = re.findall(r"^## (.+)$", (DOCS / "paper.md").read_text(encoding="utf-8"), re.MULTILINE)
    cited = {(source, title) for source, text in sources() for title in re.findall(r'§"([A-Z][^"]+)"', text)}
    assert len(cited) >= 20
    assert {(source, title) for source, title in cited if title not in headings} == set()


def test_every_page_that_is_cited_exists() -> None:
    named = {page for _, text in sources() for page in re.findall(r"\bdocs/[\w/-]+\.(?:md|yml)\b", text)}
    assert len(named) > 10
    assert not [page for page in named if not (ROOT / page).exists()]
    records = {number for _, text in sources() for number in re.findall(r"\badr/(\d{4})", text)}
    assert records <= {path.name[:4] for path in (DOCS / "adr").glob("*.md")}


# ---- the map

FOLDERS = ("fsl_async", "transport", "parties", "tests", "examples")
ENTRY = re.compile(r"(?:^\|.*$)|(?:^(?:\d+\. |\S)(?:.*\n(?!\n|\d+\. |\|))*.*$)", re.MULTILINE)


def entries(text: str) -> list[str]:
    """A page's table rows, list items and paragraphs, without fenced blocks."""
    return ENTRY.findall(re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


def defined_in(path: Path) -> set[str]:
    """A module's classes, functions and constants; a class's own as `Class.name`."""

    def names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            match node:
                case ast.ClassDef(name=name, body=inner):
                    yield prefix + name
                    yield from names(inner, f"{prefix}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    yield prefix + name
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    yield prefix + name

    return set(names(ast.parse(path.read_text(encoding="utf-8")).body, ""))


@pytest.mark.parametrize("page", ["architecture.md", "paper.md"])
def test_every_path_and_name_on_the_map_exists(page: str) -> None:
    checked = 0
    for entry in entries((DOCS / page).read_text(encoding="utf-8")):
        module: Path | None = None
        for word in re.findall(r"`([^`]+)`", entry):
            path = ROOT / word
            if word.partition("/")[0] in FOLDERS and "/" in word:
                assert path.exists(), f"{page} names {word}, which is not there"
                module = path if path.suffix == ".py" else None
            elif module and re.fullmatch(r"[A-Za-z_][\w.]*", word):
                assert word in defined_in(module), f"{page} names {word} in {module.relative_to(ROOT)}: {entry}"
                checked += 1
    assert checked > 40


def test_the_picture_has_the_floors_that_the_linter_keeps() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (floors,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["parties"]]
    (picture,) = re.findall(
        r"^```\n(.*?)^```$", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.DOTALL | re.M
    )
    drawn = re.findall(r"[a-z]+", picture)
    places = [[drawn.index(name) for name in floor.split(" | ")] for floor in floors if floor != "__main__"]
    assert sorted(places) == places, "a floor is drawn below one that stands under it"


async def test_a_submission_passes_every_module_of_the_chain_on_the_map() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    chain = re.findall(r"`([\w/]+\.py)`", text.partition("**The chain.**")[2].partition("\n\n")[0])
    entered: set[str] = set()
    task = Task(name="chain", blocks=(Sparse("items", rows=64, select=2),), ring=Ring(64), updates="any", min_clients=2)
    model = {"items": np.zeros(64, np.int64)}
    async with simulate(task, model, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        await bob.submit({})
        await ada.retrieve({"items": [7]})  # what is loaded and compiled at first use is not looked at
        sys.setprofile(lambda frame, event, _: entered.add(frame.f_code.co_filename) if event == "call" else None)
        try:
            await ada.submit({"items": ([7], [1])})
            await net.finish_round()
            await ada.outcome()
        finally:
            sys.setprofile(None)
    assert [module for module in chain if str(ROOT / module) not in entered] == []
    assert len(chain) == 26


def test_every_source_that_a_page_names_exists() -> None:
    """Pages may leave out the beginning of a path."""
    there = [str(path) for folder in SOURCES for path in (ROOT / folder).rglob("*.py")]
    of_readers = {
        "agreement.py",
        "party.py",
        "test_agreement.py",
        "model.py",
        "learn.py",
        "bob.py",
        "deployment.py",
        "update.py",
        "test_words.py",
    }  # files that a page has its reader make
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for name in set(re.findall(r"\w[\w/]*\.py\b", page.read_text(encoding="utf-8"))) - of_readers:
            assert any(path.endswith(f"/{name}") for path in there), f"{page.relative_to(ROOT)} names {name}"


def test_the_map_names_every_folder_of_code() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    inner = ("kernels", "protocols", "bench", "demo", "plan", "preflight", "chart", "trials", "page")
    for name in FOLDERS[:3]:
        for package in (ROOT / name).rglob("__init__.py"):
            folder = package.parent.relative_to(ROOT)
            if not set(folder.parts[1:]) & set(inner) or folder.name in ("kernels", "protocols"):
                assert f"| `{folder}/` |" in text, f"the map does not name {folder}/"


# ---- the site


def test_the_site_loads_nothing_from_elsewhere() -> None:
    site = ROOT / "site"
    if not site.exists():
        pytest.skip("there is no site: `make docs` builds it, strictly")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"?(https?://[^\"> ]+)", page.read_text())
        assert not loaded, f"{page.relative_to(site)} loads {loaded}; `make docs` builds the site again"


def test_every_page_is_in_the_site_s_navigation() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS)
        assert name.parts[0] == "adr" or f": {name}\n" in listed, f"mkdocs.yml does not list {name}"
