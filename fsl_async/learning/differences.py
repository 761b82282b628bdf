"""What changed between two arrays of one block.

Rules: floats are subtracted in float64, integers as integers; what is not a finite number, or not an int64, is refused
by the name of its tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Layout
from fsl_async.learning.updates import RowValues, Update
from fsl_async.task import Sparse


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
