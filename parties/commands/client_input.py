"""What a client's commands read: rows from the command line, updates from a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsl_async.errors import MisuseError

if TYPE_CHECKING:
    from fsl_async.task import Task

__all__ = ["rows_from", "updates_from"]


def rows_from(option: str) -> Any:
    """Rows from the command line."""
    import msgspec
    import numpy as np

    try:
        text = Path(option[1:]).read_bytes() if option.startswith("@") else f"[{option}]"
    except (OSError, ValueError) as error:
        raise MisuseError(f"rows: {option[1:]} cannot be read: {getattr(error, 'strerror', error)}") from error
    try:
        return np.array(msgspec.json.decode(text, type=list[int]), dtype=np.int64)
    except (ValueError, OverflowError) as error:
        raise MisuseError(f"rows: a list as in 3,17,99 or @FILE with a JSON list expected, got {option!r}") from error


def updates_from(task: Task, arrays: dict[str, Any]) -> dict[str, Any]:
    """A client's updates from the arrays of a file."""
    from fsl_async.ring import RingIntegers
    from fsl_async.task import Dense

    if task.protocol != "ssa":
        does = "only serve retrievals" if task.protocol == "psr" else "only find a union"
        raise MisuseError(
            f"the rounds of task {task.name!r} {does}: nothing is submitted in them (protocol={task.protocol!r})"
        )

    def values(name: str, numbers: str) -> Any:
        elements = f"{name}.elements"
        if numbers in arrays and elements in arrays:
            raise MisuseError(f"update: block {name!r} has both {numbers} and {elements}; one of them expected")
        return arrays[numbers] if numbers in arrays else RingIntegers(arrays[elements])

    updates: dict[str, Any] = {}
    blocks = {key: _block_of(task, key) for key in arrays}
    for name in dict.fromkeys(blocks.values()):
        given = {key for key in arrays if blocks[key] == name}
        if isinstance(task.block(name), Dense):
            if not given <= {name, f"{name}.elements"}:
                raise MisuseError(f"update: block {name!r} is dense and needs {name} alone, without rows")
            updates[name] = values(name, name)
        elif f"{name}.rows" in given and len(given) > 1 and name not in given:
            updates[name] = (arrays[f"{name}.rows"], values(name, f"{name}.values"))
        else:
            raise MisuseError(f"update: block {name!r} is sparse and needs both {name}.rows and {name}.values")
    return updates


def _block_of(task: Task, key: str) -> str:
    """Whose values an array of an update's file holds."""
    if any(block.name == key for block in task.blocks):
        return key
    for ending in (".rows", ".values", ".elements"):
        if key.endswith(ending):
            return key.removesuffix(ending)
    return key
