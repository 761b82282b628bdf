"""What a train function is given, and what comes of it: a model's tensors, of whose tables only some rows are there.

Rules: a row that was not retrieved is NaN, so whatever uses one is NaN as well, and is refused before anything is sent;
a row that was not retrieved and is changed all the same is refused by its number.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.learning import StateMapping, distinct_rows
from fsl_async.task import Sparse, Task

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
Wanted: TypeAlias = Mapping[str, "npt.NDArray[np.int64] | EllipsisType"]
"""By block, the rows that a client retrieves, or all of it."""


def check_task(task: Task, mapping: StateMapping) -> None:
    """Check that Flower can drive the rounds of a task.

    Raises:
        MisuseError: it cannot, or its blocks are others than the mapping's.
    """
    reason = ""
    if task.protocol != "ssa":
        reason = f"protocol={task.protocol!r} sums nothing"
    elif task.alignment != "all":
        reason = "Flower's rounds find no union: alignment='all' is needed"
    elif task.draws:
        reason = "the servers draw who takes part; leave out the sample, and let fraction_train choose nodes"
    if reason:
        raise MisuseError(f"task {task.name!r} is none for Flower: {reason}")
    mapping.check(task)


def wanted_blocks(mapping: StateMapping, ids: Mapping[str, npt.ArrayLike]) -> dict[str, Any]:
    """What a client retrieves: of each table that is named the rows of the ids, of every other block everything.

    Args:
        mapping: of tensors to blocks.
        ids: by tensor, ids of any shape, repeated as they may be.

    Raises:
        MisuseError: there is no such table, an id is outside it, or there are more distinct ids than `select`.
    """
    rows = {mapping.block(tensor).name: distinct_rows(each, mapping.block(tensor)) for tensor, each in ids.items()}
    return {block.name: rows.get(block.name, ...) for block in mapping.blocks if block.name != mapping.examples}


def given_state(
    mapping: StateMapping, wanted: Wanted, retrieved: Arrays, template: Arrays
) -> dict[str, npt.NDArray[Any]]:
    """The state that a train function is given, whose tensors have the shapes and the order of the template.

    Args:
        mapping: of tensors to blocks.
        wanted: by block, what was asked for.
        retrieved: by block, what came: (rows, width) or (size,).
        template: a state, from which local tensors are taken.
    """
    model = {name: _placed(mapping, name, rows, retrieved[name]) for name, rows in wanted.items()}
    state = mapping.state(model, template)
    return {name: state[name] for name in template}


def update_of(
    mapping: StateMapping, wanted: Wanted, before: Arrays, after: Arrays, examples: float | None
) -> dict[str, Any]:
    """What training changed, as `submit` takes it.

    Args:
        mapping: of tensors to blocks.
        wanted: by block, what was asked for.
        before: the state that the train function was given.
        after: the state that it returned.
        examples: on how many it trained, where the mapping counts them.

    Raises:
        MisuseError: a tensor is missing, unknown or of another shape or dtype, a number is not finite, or a row has
            changed that was not retrieved.
    """
    missing = [name for name in before if name not in after]
    if missing or len(after) != len(before):
        raise MisuseError(
            f"the train function returned {len(after)} tensors, {len(before)} expected"
            + (f"; {missing[0]!r} is missing" if missing else "")
        )
    first, second = dict(before), dict(after)
    for tensor in mapping.tensors:
        rows = wanted[mapping.block(tensor).name]
        if not isinstance(rows, EllipsisType):
            first[tensor], second[tensor] = _held_rows(tensor, rows, before[tensor], np.asarray(after[tensor]))
    return mapping.update(first, second, examples)


def _placed(
    mapping: StateMapping, name: str, rows: npt.NDArray[np.int64] | EllipsisType, retrieved: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    block = next(each for each in mapping.blocks if each.name == name)
    if isinstance(rows, EllipsisType) or not isinstance(block, Sparse):
        return retrieved
    absent = np.nan if retrieved.dtype.kind == "f" else 0
    whole = np.full(block.shape, absent, dtype=retrieved.dtype)
    whole[rows] = retrieved
    return whole


def _held_rows(
    tensor: str, rows: npt.NDArray[np.int64], before: npt.NDArray[Any], after: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both with zeros in the rows that were not retrieved, which must not have changed."""
    if after.shape != before.shape or after.dtype != before.dtype:
        return before, after  # the mapping refuses it, by its name
    absent = np.ones(len(before), dtype=bool)
    absent[rows] = False
    same = np.isnan(after[absent]) if before.dtype.kind == "f" else after[absent] == before[absent]
    if not same.all():
        row = np.flatnonzero(absent)[np.argwhere(~same)[0][0]]
        raise MisuseError(
            f"tensor {tensor!r}: row {row} was changed, and was not retrieved; have `rows` name every id that "
            "training uses"
        )
    first, second = before.copy(), after.copy()
    first[absent] = second[absent] = 0
    return first, second
