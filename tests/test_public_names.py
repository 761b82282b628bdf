"""The names that the packages export: each is found, listed once, and the same to a type checker as to a program."""

import ast
import importlib
import inspect
import re
import textwrap
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT
from tests.support.cases import in_turn

PACKAGES = ("fsl_async", "parties", "transport")
LAZY = ["fsl_async", "fsl_async.kernels", "parties", "parties.testing"]


@pytest.fixture(params=LAZY)
def package(request) -> ModuleType:
    return importlib.import_module(request.param)


def test_a_type_checker_and_a_program_find_the_same_names(package):
    (block,) = [node for node in ast.parse(inspect.getsource(package)).body if isinstance(node, ast.If)]
    checked = []
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname == alias.name, "a checker passes on only what is imported `as` itself"
            checked.append(alias.name)
    assert sorted(checked) == package.__all__, "each once"


def test_all_and_dir_are_the_names_that_are_there_and_no_others(package):
    assert sorted(package.__all__) == dir(package) == sorted(set(package.__all__))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


# ---- the page


NEEDED = {"fsl_async.learning.pytorch": "torch", "parties.flower": "flwr"}
WITH_AN_EXTRA = [name for name, needs in NEEDED.items() if find_spec(needs)]
STABLE = [
    "fsl_async",
    "fsl_async.learning",
    "fsl_async.protocols.machine",
    "parties",
    "parties.aio",
    "parties.testing",
    "transport",
    *WITH_AN_EXTRA,
]


@pytest.mark.parametrize("name", STABLE)
def test_the_page_about_stability_lists_what_is_exported_and_nothing_else(name):
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^### `{name}`\n(.*?)(?=^##)", page, flags=re.MULTILINE | re.DOTALL)
    rows = [line.split("|")[2] for line in section.splitlines() if line.startswith("|")][2:]
    listed = [word for row in rows for word in re.findall(r"`([^`]*)`", row)]
    assert sorted(listed) == sorted(importlib.import_module(name).__all__)


def test_the_page_lists_the_primitive_s_names():
    page = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^`fsl_async.udpf`: (.*)\.$", page, flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", line)) == sorted(importlib.import_module("fsl_async.udpf").__all__)


EXPORTED = [(name, each) for name in STABLE for each in importlib.import_module(name).__all__]


def test_no_name_is_exported_twice_for_two_things():
    places: dict[str, set[int]] = {}
    for package, name in EXPORTED:
        if package == "parties.aio":  # the names of `parties`, for another loop
            assert name in importlib.import_module("parties").__all__
            continue
        places.setdefault(name, set()).add(id(getattr(importlib.import_module(package), name)))
    assert not {name for name, things in places.items() if len(things) > 1}


@in_turn("package, name", [pair for pair in EXPORTED if pair[0] != "parties.testing"])
def test_every_exported_name_is_described(package, name):
    found = getattr(importlib.import_module(package), name)
    if isinstance(found, type) or inspect.isfunction(found) or inspect.ismodule(found):
        lines = (found.__doc__ or "").strip().splitlines()
        assert len(lines) > 1, f"{package}.{name} needs more than one line"
    else:  # an alias: the text below its assignment
        assert re.search(rf'^{name}(: TypeAlias)? = .*\n"""\w.*', sources(), flags=re.MULTILINE), name


@in_turn("package, name", EXPORTED)
def test_no_description_only_points_to_another(package, name):
    found = getattr(importlib.import_module(package), name)
    members = {name: found, **(dict(inspect.getmembers(found)) if isinstance(found, type) else {})}
    assert [each for each, member in members.items() if (inspect.getdoc(member) or "").startswith("See `")] == []


def test_a_front_s_call_has_the_client_s_whole_text_as_it_is_called_there():
    parties = importlib.import_module("parties")
    whole, blocking = (inspect.getdoc(each.submit) or "" for each in (parties.Client, parties.BlockingClient))
    assert inspect.getdoc(parties.aio.Client.submit) == whole == blocking
    assert "    rows = client.retrieve(" in (inspect.getdoc(parties.BlockingClient.retrieve) or "")
    assert "    with client.taking_part():" in (inspect.getdoc(parties.BlockingClient.taking_part) or "")
    assert (inspect.getdoc(parties.SqliteStore.blob) or "").endswith("\n\nRead-only.")


@cache
def sources() -> str:
    return "\n".join(path.read_text() for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))


def examples(description: str) -> list[str]:
    """The indented blocks that follow an empty line; those with an arrow are tables."""
    found = re.findall(r"(?:\A|\n)\n((?: {4}.*\n?|\n(?= {4}))+)", inspect.cleandoc(description))
    return [textwrap.dedent(block) for block in found if "→" not in block]


@in_turn("package, name", EXPORTED)
def test_the_examples_in_a_description_are_python(package, name):
    for example in examples(getattr(importlib.import_module(package), name).__doc__ or ""):
        compile(example, f"{package}.{name}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_the_example_of_the_primitive_runs():
    (example,) = examples(importlib.import_module("fsl_async.udpf").__doc__ or "")
    names: dict[str, Any] = {}
    exec(compile(example, "fsl_async.udpf", "exec"), names)
    keys = names["first"], names["second"]
    total = names["ring"].add(*(names["udpf"].evaluate(key, [417, 418]) for key in keys))
    assert names["ring"].decode(total).tolist() == [[[2.0], [0.0]]]


# ---- what is shown to users


WITHIN = (
    "examples/paper/efficiency/",
    "examples/paper/accuracy/private.py",
    "examples/paper/results.py",
    "examples/paper/surroundings.py",
    "examples/sketching/",
)
"""They measure or simulate the steps inside a party, as `python -m tests.bench` does, and are no pattern for users."""

SHOWN = [
    *(path for path in (ROOT / "examples").rglob("*.py") if not str(path.relative_to(ROOT)).startswith(WITHIN)),
    ROOT / "README.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "tutorials").glob("*.md"),
]
BESIDES = {"parties.testing.world": {"world"}, "parties.testing.trials": {"draw", "run"}}


def exported_by(package: str) -> set[str]:
    """The names; those of a package whose extra is missing here are read, because it cannot be imported."""
    if package in set(NEEDED) - set(WITH_AN_EXTRA):
        text = (ROOT / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
        return set(ast.literal_eval(re.findall(r"^__all__ = (\[[^]]*\])$", text, flags=re.MULTILINE)[0]))
    module = importlib.import_module(package)
    return set(getattr(module, "__all__", vars(module)))


@in_turn("path", SHOWN)
def test_examples_and_pages_import_what_is_exported_alone(path):
    pattern = r"^ *from ((?:fsl_async|parties|transport)[\w.]*) import (?:\(([^)]*)\)|(.*))$"
    for package, several, one in re.findall(pattern, path.read_text(encoding="utf-8"), flags=re.MULTILINE):
        names = {name.split(" as ")[0].strip() for name in (several or one).split(",") if name.strip()} - {"…"}
        public = BESIDES.get(package) or exported_by(package)
        assert names <= public, f"{path.name} imports {names - public} from {package}"
