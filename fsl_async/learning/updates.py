"""An update as `submit` takes it, by block: what it may be made of, how it is made of two arrays, and whether it fits.

Rules: a pair of rows and values where the block is sparse, values alone where it is dense; rows are distinct.

Rules of a change: floats are subtracted in float64, integers as integers; what is not a finite number, or not an int64,
is refused by the name of its tensor.

Rules of a fit: the ring decides (`Ring.misfits`) and rounds (`Ring.encode`); its verdict gets a tensor's name here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Layout
from fsl_async.task import Sparse, Task

RowValues: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[Any]]
"""Distinct rows, and values (rows, width)."""

Update: TypeAlias = dict[str, RowValues | npt.NDArray[Any]]
"""What `submit` takes: by sparse block a pair of rows and values, by dense block values."""


def row_values(block: Sparse, given: object) -> RowValues:
    """The rows and values of a sparse block, any number of rows.

    Raises:
        MisuseError: they are no pair, or the rows are not distinct rows of the block, or the values not one for each.
    """
    if not isinstance(given, tuple) or len(given) != 2:
        raise MisuseError(f"block {block.name!r}: a pair of rows and values expected, got {type(given).__name__}")
    rows, values = np.asarray(given[0]), np.asarray(given[1])
    if rows.size == 0:
        rows = rows.astype(np.int64)
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise MisuseError(f"block {block.name!r}: a list of integer rows expected, got {rows.dtype} {rows.shape}")
    outside = (rows < 0) | (rows >= block.rows)
    if outside.any():
        raise MisuseError(f"block {block.name!r}: row {rows[outside][0]} is outside 0 to {block.rows - 1}")
    if len(distinct(rows)) != len(rows):
        raise MisuseError(f"block {block.name!r}: a row is named twice")
    shape = (len(rows), block.width)
    if values.shape != shape and not (block.width == 1 and values.shape == (len(rows),)):
        raise MisuseError(f"block {block.name!r}: values of shape {shape} expected, got {values.shape}")
    if values.dtype.kind not in "fiu":
        raise MisuseError(f"block {block.name!r}: floats or integers expected, got {values.dtype}")
    return rows.astype(np.int64), values.reshape(shape)


def distinct(numbers: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Each number once, ascending; what `np.unique` does, which is slow for millions of them (it hashes)."""
    ordered = np.sort(numbers, axis=None).astype(np.int64)
    first = np.ones(len(ordered), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def flat_values(name: str, size: int, given: object) -> npt.NDArray[Any]:
    """The values of a dense block.

    Raises:
        MisuseError: they are not as many numbers as the block holds.
    """
    values = np.asarray(given) if not isinstance(given, tuple) else np.zeros(0)
    if values.shape != (size,) or values.dtype.kind not in "fiu":
        came = "a tuple" if isinstance(given, tuple) else f"{values.dtype} of shape {values.shape}"
        raise MisuseError(f"block {name!r}: {size} values expected, got {came}")
    return values


def changes(layout: Layout, before: npt.NDArray[Any], after: npt.NDArray[Any]) -> RowValues | npt.NDArray[Any]:
    """After − before, of a block's arrays: of a sparse block the rows that differ, of a dense block all of it.

    Raises:
        MisuseError: a change is not a finite number, or too large for int64.
    """
    if not isinstance(layout.block, Sparse):
        return _difference(layout, np.arange(layout.block.weights), before, after)
    width = layout.block.width
    rows = np.flatnonzero((before != after).any(axis=1)).astype(np.int64)
    places = rows[:, None] * width + np.arange(width)
    return rows, _difference(layout, places, before[rows], after[rows])


def weighted(update: Update, weight: float) -> Update:
    """All values times a client's weight."""
    return {
        name: (given[0], given[1] * weight) if isinstance(given, tuple) else given * weight
        for name, given in update.items()
    }


def _difference(
    layout: Layout, places: npt.NDArray[np.int64], before: npt.NDArray[Any], after: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    change: npt.NDArray[Any]
    if after.dtype.kind == "f":
        with np.errstate(invalid="ignore", over="ignore"):  # looked at below
            change = after.astype(np.float64) - before.astype(np.float64)
        bad, why = ~np.isfinite(change), "is not a finite number"
    else:
        change = after.astype(np.int64) - before.astype(np.int64)  # wraps where the sign says so
        bad, why = ((after < before) != (change < 0)) & (after != before), "is too far from what it was, for int64"
    if bad.any():
        tensor, index = layout.place(int(places[bad][0]))
        raise MisuseError(f"tensor {tensor.name!r}: {after[bad][0]} at {index} {why}, after {before[bad][0]}")
    return change


# ---- whether it fits a task's ring


@dataclass(frozen=True)
class Fit:
    """How a tensor's update fits the ring.

    Attributes:
        value: its largest absolute value.
        largest: the largest that one client may submit; see `Task.largest_value`.
        rounding: the largest difference between a value and what the ring makes of it; 0.0 where all are exact.
    """

    value: float
    largest: float
    rounding: float


def rounded(task: Task, values: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Values as a sum counts them.

    Raises:
        MisuseError: one does not fit.
    """
    return task.ring.decode(task.ring.encode(values, task.largest_integer, name))


def refuse_misfit(task: Task, values: npt.NDArray[Any], place: Callable[[int], str]) -> None:
    """Refuse the first value that does not fit.

    Args:
        task: whose ring and largest value count.
        values: numbers.
        place: from the index in the flat values, what stands there.

    Raises:
        MisuseError: one does not fit.
    """
    bad = task.ring.misfits(values, task.largest_integer).reshape(-1)
    if not bad.any():
        return
    where = int(np.argmax(bad))
    value = values.reshape(-1)[where]
    if not np.isfinite(value):
        raise MisuseError(f"{place(where)}: {value} is not a finite number")
    raise MisuseError(
        f"{place(where)}: {value} does not fit; the largest is {task.largest_value} ({task.ring.bits} bits, "
        f"{task.ring.fraction_bits} of them behind the point, for {task.max_clients:,} clients): make the update "
        "smaller (a smaller learning rate or weight), or agree on a task with room for it"
    )


def fits_of(layout: Layout, given: object, task: Task) -> dict[str, Fit]:
    """How the tensors of one block fit.

    Raises:
        MisuseError: a value does not fit, or the update is not one of this block.
    """
    block = layout.block
    if isinstance(block, Sparse):
        rows, values = row_values(block, given)
        places = (rows[:, None] * block.width + np.arange(block.width)).reshape(-1)
    else:
        values = flat_values(block.name, block.size, given)
        places = np.arange(block.size)

    def place(index: int) -> str:
        tensor, where = layout.place(int(places[index]))
        return f"tensor {tensor.name!r} at {where}"

    refuse_misfit(task, values, place)
    exact = values.reshape(-1).astype(np.float64)
    errors = np.abs(rounded(task, values, f"block {block.name!r}").reshape(-1).astype(np.float64) - exact)
    owners = layout.owners(places)
    largest = _largest_by(owners, np.abs(exact), len(layout.tensors))
    rounding = _largest_by(owners, errors, len(layout.tensors))
    return {
        tensor.name: Fit(float(largest[number]), task.largest_value, float(rounding[number]))
        for number, tensor in enumerate(layout.tensors)
    }


def _largest_by(owners: npt.NDArray[np.intp], values: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    found = np.zeros(count + 1)  # one more for what fills the last row
    np.maximum.at(found, owners, values)
    return found
