"""What the house weighs: `python -m tests.house` prints each count beside its ceiling, and fails above one.

A ceiling is lowered with what goes. What a feature adds, it pays for somewhere else.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from tests import ROOT

PACKAGES = ("fsl_async", "transport", "parties")
WINGS = (
    "fsl_async/costs",
    "fsl_async/learning",
    "fsl_async/pytest_plugin.py",
    "parties/aio",
    "parties/cluster",
    "parties/commands/bench/",
    "parties/commands/demo/",
    "parties/commands/plan/",
    "parties/flower",
    "parties/simulation",
    "parties/testing",
    "transport/testing",
)
"""What no client, no server and none of their commands loads, unless it is asked for."""


class Count(NamedTuple):
    """One line of the table.

    Attributes:
        what: what is counted.
        now: how many there are.
        ceiling: how many there may be; more fails.
        goal: how many there are to be in the end; docs/adr/0038 has the reasons.
    """

    what: str
    now: int
    ceiling: int
    goal: int


def counts() -> list[Count]:
    """Everything that has a ceiling."""
    product = [path for package in PACKAGES for path in python_files(ROOT / package)]
    tests = [path for path in python_files(ROOT / "tests") if not path.is_relative_to(ROOT / "tests" / "bench")]
    core = [path for path in product if not path.relative_to(ROOT).as_posix().startswith(WINGS)]
    return [
        Count("lines of the packages", lines(product), 79_574, 79_000),
        Count("files of the packages", len(product), 469, 465),
        Count("lines of the core", lines(core), 57_628, 57_000),
        Count("lines of the tests", lines(tests), 76_071, 75_000),
        Count("classes of the packages", sum(map(classes, product)), 1_023, 1_010),
        Count("floors of parties", floors(), 8, 8),
        Count("files of parties/server/round", len(list(python_files(ROOT / "parties/server/round"))), 21, 21),
        Count("files of the packages that name `sample`", sum("sample" in names(path) for path in product), 13, 14),
    ]


def python_files(folder: Path) -> Iterator[Path]:
    """Those of a folder and what is below it."""
    return folder.rglob("*.py")


def lines(paths: list[Path]) -> int:
    """As `wc -l` counts them."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def classes(path: Path) -> int:
    """Those that a file defines, also within others."""
    return sum(isinstance(node, ast.ClassDef) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def names(path: Path) -> set[str]:
    """The variables, attributes, arguments and modules that a file names; `rng.sample` is Python's."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id="rng") | ast.Attribute(attr="_rng")):
                pass
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                found.add(name)
            case ast.ImportFrom(module=str(name)):
                found |= set(name.split("."))
    return found


def floors() -> int:
    """The layers of `parties`, as `lint-imports` checks them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == ["parties"]]
    return len(layers)


def main() -> int:
    """Print the table; 1 where a count is above its ceiling."""
    table = Table(box=None, padding=(0, 2))
    for title in ("", "now", "ceiling", "goal"):
        table.add_column(title, justify="left" if not title else "right")
    found = counts()
    for count in found:
        mark = "[red]" if count.now > count.ceiling else ""
        table.add_row(f"{mark}{count.what}", *(f"{mark}{number:,}" for number in count[1:]))
    Console(width=100).print(table)
    return int(any(count.now > count.ceiling for count in found))


if __name__ == "__main__":
    sys.exit(main())
