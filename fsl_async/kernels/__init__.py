"""Compiled kernels: AES, distributed point functions, and rows in and out of segments.

The compiler behind them takes half a second to import, which a command that computes nothing should not cost: the names
of `facade` are loaded when the first of them is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fsl_async.kernels.facade import *  # noqa: F403 - the names are listed there


def __getattr__(name: str) -> Any:
    """Load the kernels, then find the name among theirs."""
    facade = import_module("fsl_async.kernels.facade")
    if name not in facade.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(facade, name)
    return value
