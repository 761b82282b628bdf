"""Public names of a package whose modules are imported only when a name is first used.

A package lists its names once, by module, and once more for type checkers, which run no code:

    if TYPE_CHECKING:
        from fsl_async.task import Dense as Dense, Task as Task
    else:
        __all__, __getattr__, __dir__ = lazy(__name__, {"fsl_async.task": "Dense Task"})
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy(package: str, table: Mapping[str, str]) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """Make what a package needs to import its public names on first use (PEP 562).

    Args:
        package: the package's `__name__`.
        table: the names of each module, separated by spaces; a name of the package itself is one of its modules.

    Returns:
        The package's `__all__`, `__getattr__` and `__dir__`.
    """
    modules = {name: module for module, names in table.items() for name in names.split()}

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if modules[name] == package:
            return import_module(f"{package}.{name}")
        found = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return sorted(modules), find, lambda: sorted(modules)
