"""A task's own rule: the function that its servers apply to a sum, found by its name.

A server runs it with all its rights. So a server that is set up from files imports only what its own file names as
well; see `parties.deployment.server`.
"""

from __future__ import annotations

import importlib
from typing import Any

from fsl_async.errors import MisuseError
from fsl_async.server_rules import OwnRule
from fsl_async.task import Task


def own_rule(task: Task, given: OwnRule | None = None) -> OwnRule | None:
    """The function that a task applies: the given one, or the one that its name leads to; None where it has none.

    Raises:
        MisuseError: the module cannot be imported, or has no such function; or a function is given to a task that
            applies none.
    """
    if task.rule != "own":
        if given is not None:
            raise MisuseError(f'a function was given, and the task applies the "{task.apply}"; leave the function out')
        return None
    return found(str(task.apply)) if given is None else given


def found(name: str) -> OwnRule:
    """The function of a name "module:function".

    Raises:
        MisuseError: there is none.
    """
    module, _, inner = name.partition(":")
    try:
        function: Any = importlib.import_module(module)
        for part in inner.split("."):
            function = getattr(function, part)
    except (Exception, SystemExit) as error:  # an import runs whatever the module holds
        raise MisuseError(
            f'apply = "{name}" cannot be imported: {type(error).__name__}: {error}; install the package of {module!r} '
            "beside fsl-async, or name its folder in PYTHONPATH"
        ) from error
    if not callable(function):
        raise MisuseError(f'apply = "{name}" is no function, but {type(function).__name__}')
    rule: OwnRule = function
    return rule
