"""What a caller hands to a client: checked whole before anything is sent, and encoded.

Rules: everything that is wrong raises a `MisuseError` that names the block, what was expected and what came; nothing is
clipped, padded or reshaped silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.client.planting import check_by_block, check_rows, rows_by_block
from fsl_async.client.upload import SparseUpdate
from fsl_async.config import RoundConfig
from fsl_async.errors import MisuseError
from fsl_async.ring import Elements, RingIntegers
from fsl_async.task import Dense, Sparse, Task

Values: TypeAlias = npt.NDArray[Any] | RingIntegers
Rows: TypeAlias = Mapping[str, "npt.ArrayLike | EllipsisType"]


def wanted_rows(task: Task, rows: Rows) -> tuple[dict[int, npt.NDArray[np.uint32]], list[str]]:
    """Check what a caller wants to retrieve.

    Returns:
        The rows by the index of their sparse block, and the names of the blocks asked for whole, with `...`.

    Raises:
        MisuseError: a block is unknown, a dense one is asked for by rows, or rows are not what the task allows.
    """
    check_by_block(rows)
    whole = [name for name, wanted in rows.items() if wanted is ...]
    for name in whole:
        if task.block(name).name == task.weights:
            raise MisuseError(f"block {name!r} has the clients' weights and no model: leave it out of the retrieval")
    arrays = {name: _array(name, wanted) for name, wanted in rows.items() if wanted is not ...}
    return rows_by_block(task, arrays), whole


def encoded_updates(task: Task, updates: Mapping[str, Any]) -> tuple[dict[int, SparseUpdate], dict[int, Elements]]:
    """Check a caller's updates whole, and encode them.

    Returns:
        The sparse and the dense updates, by the index of their block.

    Raises:
        MisuseError: a block is unknown, a shape is wrong, or a value is not a number that fits; or the task weighs its
            clients, and this one's weight is missing, negative or above the task's largest.
    """
    check_by_block(updates)
    sparse_index = {block.name: index for index, block in task.sparse_blocks()}
    dense_index = {block.name: index for index, block in task.dense_blocks()}
    sparse: dict[int, SparseUpdate] = {}
    dense: dict[int, Elements] = {}
    for name, update in updates.items():
        block = task.block(name)
        if isinstance(block, Sparse):
            sparse[sparse_index[name]] = _encode_sparse(task, block, update)
        else:
            dense[dense_index[name]] = _encode_dense(task, block, update)
    if task.weights is not None and updates:  # nothing at all weighs nothing
        _check_weight(task, task.weights, dense.get(dense_index[task.weights]))
    return sparse, dense


def check_late(task: Task, late: str | None) -> None:
    """Check that a late update may be in the next round.

    Raises:
        MisuseError: the task does not allow it, or it is another word.
    """
    if late not in (None, "next"):
        raise MisuseError(f'late: "next" or None expected, got {late!r}')
    if late and task.updates != "any":
        raise MisuseError(
            'late="next" needs a task with updates="any": in this one an update shares its tree with the retrieval of '
            "its round. Where `submit` raises RoundClosedError, call `retrieve` for the same rows, then in the next "
            "round, and `submit` the same update there"
        )


def refuse_fractions(config: RoundConfig, sparse: Mapping[int, SparseUpdate], dense: Mapping[int, Elements]) -> None:
    """Check that blocks of integers get whole numbers only, because their sum has no place for a fraction.

    Raises:
        MisuseError: one gets a fraction.
    """
    task = config.task
    encoded = {task.sparse(index).name: values for index, (_, values) in sparse.items()}
    encoded |= {block.name: dense[index] for index, block in task.dense_blocks() if index in dense}
    for name, elements in encoded.items():
        if name == task.weights:
            continue  # it is in no model
        dtype = np.dtype(config.block_model(name).dtype)
        below_the_point = task.ring.to_integers(elements) & ((1 << task.ring.fraction_bits) - 1)
        if dtype.kind != "f" and below_the_point.any():
            where = np.argwhere(below_the_point)[0]
            value = task.ring.decode(elements)[tuple(where)]
            raise MisuseError(
                f"block {name!r}: the servers hold it as {dtype}, so whole numbers are expected; got {value} at "
                f"{where.tolist()}"
            )


def _check_weight(task: Task, name: str, weight: Elements | None) -> None:
    if weight is None:
        raise MisuseError(
            f"block {name!r} is missing: submit this client's weight in it, as one number of at least 0, and the other "
            "values multiplied by that weight"
        )
    units = task.ring.to_integers(weight)[0]
    if units < 0:
        raise MisuseError(f"block {name!r}: a weight of at least 0 expected, got {task.ring.decode(weight)[0]}")
    if task.largest_weight is not None and units > task.largest_weight_integer:
        raise MisuseError(
            f"block {name!r}: a weight of at most the task's largest, {task.largest_weight:g}, expected, got "
            f"{task.ring.decode(weight)[0]}; multiply the other values by the smaller weight, too"
        )


def _encode_sparse(task: Task, block: Sparse, update: Any) -> SparseUpdate:
    if not isinstance(update, tuple) or len(update) != 2:
        raise MisuseError(
            f"block {block.name!r} is sparse: a pair (rows, values) expected, got {type(update).__name__}"
        )
    rows = check_rows(block, _array(block.name, update[0]))
    values = _values(block.name, update[1])
    shape = (len(rows), block.width)
    shapes = {shape, (len(rows),)} if block.width == 1 else {shape}
    if values.shape not in shapes and (len(rows) or values.size):
        raise MisuseError(
            f"block {block.name!r}: values of shape {shape} expected for {len(rows)} rows, got {values.shape}"
        )
    return rows, _encode(task, block.name, values.reshape(shape))


def _encode_dense(task: Task, block: Dense, update: Any) -> Elements:
    if isinstance(update, tuple):
        raise MisuseError(f"block {block.name!r} is dense: {block.size} values and no rows expected, got a tuple")
    values = _values(block.name, update)
    if values.shape != (block.size,):
        raise MisuseError(f"block {block.name!r}: {block.size} values expected, got shape {values.shape}")
    return _encode(task, block.name, values)


def _encode(task: Task, name: str, values: Values) -> Elements:
    try:
        return task.ring.encode(values, task.largest_integer, f"block {name!r}")
    except TypeError as error:  # an array of objects that are no numbers
        raise MisuseError(f"block {name!r}: floats or integers expected: {error}") from error


def _values(name: str, values: Any) -> Values:
    return values if isinstance(values, RingIntegers) else _array(name, values)


def _array(name: str, values: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:  # a ragged list
        raise MisuseError(f"block {name!r}: an array expected: {error}") from error
