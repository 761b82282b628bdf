"""The names that the packages export: each is found, listed once, and the same to a type checker as to a program."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

LAZY = ["fsl_async", "fsl_async.kernels", "parties", "parties.testing"]


@pytest.fixture(params=LAZY)
def package(request) -> ModuleType:
    return importlib.import_module(request.param)


def source(package: ModuleType) -> ast.Module:
    assert package.__file__
    return ast.parse(Path(package.__file__).read_text())


def test_a_type_checker_finds_every_name_where_the_program_finds_it(package):
    (block,) = [node for node in source(package).body if isinstance(node, ast.If)]
    checked = {}
    for statement in block.body:
        assert isinstance(statement, ast.ImportFrom)
        for alias in statement.names:
            assert alias.asname == alias.name, "a checker passes on only what is imported `as` itself"
            assert alias.name not in checked, f"{alias.name} is listed twice"
            checked[alias.name] = statement.module
    (table,) = [node for node in ast.walk(block) if isinstance(node, ast.Dict)]
    found = [(name, module) for module, names in ast.literal_eval(table).items() for name in names.split()]
    assert sorted(found) == sorted(checked.items())


def test_all_and_dir_are_the_names_that_are_there_and_no_others(package):
    assert sorted(package.__all__) == dir(package) == sorted(set(package.__all__))
    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018
