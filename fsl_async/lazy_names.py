"""Public names of a package whose modules are imported only when a name is first used.

A package lists its names once, for type checkers, which run no code:

    if TYPE_CHECKING:
        from fsl_async.task import Dense as Dense, Task as Task
    else:
        __all__, __getattr__, __dir__ = lazy(__name__)

The interpreter compiles that list and does not run it; so what a program finds is read off the package's own code.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise
from types import FrameType


def lazy(package: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Make what a package needs to import its public names on first use (PEP 562); its own code calls this.

    Args:
        package: the package's `__name__`.

    Returns:
        The package's `__all__`, `__getattr__` and `__dir__`.
    """
    modules = dict(_left_out(sys._getframe(1)))

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(modules), find, lambda: sorted(modules)


def _left_out(package: FrameType) -> Iterator[tuple[str, str]]:
    """The names that a package's code imports in what was not run, each with its module."""
    for names, step in pairwise(dis.get_instructions(package.f_code)):
        if step.opname == "IMPORT_NAME":
            yield from ((name, step.argval) for name in names.argval or () if name not in package.f_globals)
