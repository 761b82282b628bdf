"""Public names of a package whose modules are imported only when a name is first used.

A package lists its names once, for type checkers, which run no code:

    if TYPE_CHECKING:
        from fsl_async.task import Dense as Dense, Task as Task
    else:
        __all__, __getattr__, __dir__ = lazy(__name__, __file__)

What a program finds is read off those same lines of the package's source.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def lazy(package: str, source: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Make what a package needs to import its public names on first use (PEP 562).

    Args:
        package: the package's `__name__`.
        source: its `__file__`.

    Returns:
        The package's `__all__`, `__getattr__` and `__dir__`.
    """
    modules = _listed(Path(source))

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(modules), find, lambda: sorted(modules)


def _listed(source: Path) -> dict[str, str]:
    """The module of each name that a package imports for type checkers alone."""
    body = ast.parse(source.read_bytes()).body
    (choice,) = (step for step in body if isinstance(step, ast.If) and ast.unparse(step.test) == "TYPE_CHECKING")
    imports = (step for step in choice.body if isinstance(step, ast.ImportFrom) and step.module)
    return {each.name: str(step.module) for step in imports for each in step.names}
