"""Whether names and blocks are those of a mapping; the first that differs is named, with both values.

Rules: a message names the tensor, not only the block that holds it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from fsl_async.errors import MisuseError
from fsl_async.task import Block, Sparse

SHOWN = 4
"""How many names a message lists."""


def check_named(given: object, what: str) -> None:
    """Check that a caller gave a dict of arrays.

    Raises:
        MisuseError: it is none, or a name is no text.
    """
    if not isinstance(given, Mapping):
        raise MisuseError(f"{what} is a dict from names to arrays, got {type(given).__name__}")
    for name in given:
        if not isinstance(name, str):
            raise MisuseError(f"{what} is a dict from names to arrays; {name!r} is no name")


def check_names(expected: Collection[str], found: Iterable[str]) -> None:
    """Check that there are the tensors of these names and no others.

    Raises:
        MisuseError: one is missing, or one is too many.
    """
    given = set(found)
    for name in expected:
        if name not in given:
            raise MisuseError(f"tensor {name!r} is missing; there are {shortened(sorted(given))}")
    for name in sorted(given - set(expected)):
        raise MisuseError(f"tensor {name!r} is not in the mapping; it has {shortened(expected)}")


def check_block(task: str, theirs: Block, ours: Block, where: str) -> None:
    """Check that a task's block is that of a mapping.

    Args:
        task: its name.
        theirs: the task's block.
        ours: the mapping's.
        where: the block and its tensors, for the message.

    Raises:
        MisuseError: it is another; the message has the field and both values.
    """
    if theirs == ours:
        return
    if type(theirs) is not type(ours):
        raise MisuseError(
            f"{where} is {type(theirs).__name__} in task {task!r} and {type(ours).__name__} in the mapping"
        )
    fields = ("rows", "width", "select", "stash") if isinstance(ours, Sparse) else ("size",)
    for field in fields:
        task_value, own_value = getattr(theirs, field), getattr(ours, field)
        if task_value != own_value:
            raise MisuseError(f"{where}: {field} is {task_value} in task {task!r} and {own_value} in the mapping")


def shortened(names: Collection[str]) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:SHOWN])
    return f"{shown} and {len(names) - SHOWN:,} more" if len(names) > SHOWN else shown or "none"
