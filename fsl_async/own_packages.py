"""The three packages of this distribution, found where they should be found.

`fsl_async`, `transport` and `parties` are installed side by side. A project with a folder `transport` or `parties` of
its own hides ours where Python finds the project first, and one process cannot have both (docs/adr/0016). What would
then fail on some missing name fails here, with both places and what to do.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).parent.parent


def require_own(name: str) -> None:
    """Make sure that `import name` gives the package that was installed with this one.

    Raises:
        ImportError: another package of that name is found first, or none at all.
    """
    ours, found = HOME / name / "__init__.py", _found(name)
    if found == str(ours) or (found and Path(found).resolve() == ours.resolve()):
        return
    raise ImportError(
        f"fsl-async needs its own package `{name}`, which is {ours.parent}, and Python finds {found or 'none'} first. "
        f"One process cannot have two packages of one name: rename your `{name}`, or put it into a package of yours "
        f"(`myproject/{name}`, imported as `myproject.{name}`); `python -P` does not search the script's "
        "folder",
        name=name,
        path=found or None,
    )


def passed_on(name: str) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """The `__all__`, `__getattr__` and `__dir__` of a module that has the names of that package.

    Raises:
        ImportError: see `require_own`.
    """
    require_own(name)
    package = import_module(name)
    return list(package.__all__), partial(getattr, package), lambda: list(package.__all__)


def _found(name: str) -> str:
    """The file that `import name` takes, or has taken; empty where there is none."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__file__", None) or ""
    spec = find_spec(name)
    return (spec.origin if spec else None) or ""
