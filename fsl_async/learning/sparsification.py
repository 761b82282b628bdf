"""What is made of an update before it is submitted: top-k sparsification, and clipping to a task's bound.

Rules: a row counts by the sum of its absolute values, in float64; of equals the one with the smaller number is taken;
what is not finite is refused, because it has no place in any order.

Source: paper §"FSL with Mega-Elements"; Aji and Heafield, Sparse Communication for Distributed Gradient Descent.

Rule of clipping: what is returned leaves room for the rounding of every value to the task's ring.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError


def top_rows(values: npt.NDArray[Any], k: int, name: str = "values") -> npt.NDArray[np.int64]:
    """The k rows with the largest Σ|w|; of equal ones, those that come first.

        top_rows(np.array([[1.0, -1.0], [0.0, 0.5], [3.0, 0.0]]), 2)      # [0, 2]

    Args:
        values: a row each along the first axis.
        k: how many, at most all.
        name: what the values are, for the error message.

    Returns:
        Their numbers, int64, ascending.

    Raises:
        MisuseError: a value is not finite, or there are no k rows.
    """
    array = np.asarray(values)
    if array.ndim == 0 or array.dtype.kind not in "fiu":
        raise MisuseError(f"{name}: rows of numbers expected, got {array.dtype} of shape {array.shape}")
    if type(k) is not int or not 0 <= k <= len(array):
        raise MisuseError(f"{name}: k must be from 0 to {len(array):,}, the number of rows, not {k!r}")
    return _largest(_sums(array, name), k)


def top_weights(values: npt.NDArray[Any], k: int, name: str = "values") -> npt.NDArray[np.int64]:
    """The k single weights with the largest absolute values; of equal ones, those that come first.

        top_weights(np.array([[1.0, -4.0], [0.0, 2.0]]), 2)      # [1, 3]

    Args:
        values: of any shape.
        k: how many, at most all.
        name: what the values are, for the error message.

    Returns:
        Their places in the flat array, int64, ascending.

    Raises:
        MisuseError: a value is not finite, or there are no k weights.
    """
    array = np.asarray(values)
    check_finite(array, name)
    return top_rows(array.reshape(-1), k, name)


def check_finite(array: npt.NDArray[Any], name: str) -> None:
    """Check that all are finite.

    Raises:
        MisuseError: one is not; the message has its index.
    """
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise MisuseError(f"{name}: {array[tuple(where)]} at {where} is not a finite number")


def _sums(array: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    rows = array.reshape(len(array), -1) if array.size else np.zeros((len(array), 1))
    if rows.dtype != np.float64:
        rows = rows.astype(np.float64)
    with np.errstate(over="ignore"):
        sums: npt.NDArray[np.float64] = np.abs(rows).sum(axis=1)
    if not np.isfinite(sums).all():
        check_finite(array, name)
        raise MisuseError(f"{name}: the sum of row {int(np.argmin(np.isfinite(sums)))} is beyond what float64 holds")
    return sums


def _largest(sums: npt.NDArray[np.float64], k: int) -> npt.NDArray[np.int64]:
    if k in (0, len(sums)):
        return np.arange(k, dtype=np.int64)
    least = np.partition(sums, len(sums) - k)[len(sums) - k]
    above, equal = np.flatnonzero(sums > least), np.flatnonzero(sums == least)
    return np.sort(np.concatenate([above, equal[: k - len(above)]])).astype(np.int64)


SPARE = 2.0**-10
"""How much shorter than the bound an update is made, relatively, where the ring's unit is not said."""

FLOATS = 2.0**-20
"""More than the scale of an update can err by itself."""


def clipped(update: Mapping[str, Any], bound: float, unit: float = 0.0) -> dict[str, Any]:
    """Scale an update down until its L2 norm, over all blocks together, is within a bound; a shorter one stays.

        await client.submit(clipped({"items": (rows, values), "head": head}, task.bound))

    Args:
        update: what `Client.submit` takes: by sparse block, a pair of rows and values; by dense block, values.
        bound: the largest norm, above 0, as in the task's `bound`.
        unit: the ring's smallest value, 2^-fraction_bits, for an update as long as can be: each of n values may be
            rounded by half of it, so √n / 2 of it are left. Without it a thousandth of the bound is left, which is
            more for n values where the bound is above 512·√n units.

    Returns:
        The same blocks and rows; values are float64 where they were scaled, and as they were otherwise.

    Raises:
        MisuseError: the bound is not above what rounding takes, or a value is not a finite number.
    """
    values = {name: np.asarray(part[1] if isinstance(part, tuple) else part) for name, part in update.items()}
    for name, array in values.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise MisuseError(f"block {name!r}: finite numbers expected")
    spare = unit / 2 * math.sqrt(sum(array.size for array in values.values())) if unit else bound * SPARE
    room = bound - spare
    if not 0 < room < float("inf"):
        raise MisuseError(f"a bound above what rounding takes expected, {spare:g}, not {bound!r}")
    length = _norm(list(values.values()))
    if length <= room:
        return dict(update)
    scale = room * (1 - FLOATS) / length
    scaled = {name: array.astype(np.float64) * scale for name, array in values.items()}
    return {name: (part[0], scaled[name]) if isinstance(part, tuple) else scaled[name] for name, part in update.items()}


def _norm(arrays: list[npt.NDArray[Any]]) -> float:
    """√Σ w², scaled by the largest so that no square overflows."""
    largest = max((float(np.abs(array.astype(np.float64)).max()) for array in arrays if array.size), default=0.0)
    if not largest:
        return 0.0
    squares = sum(float(np.square(array.astype(np.float64) / largest).sum()) for array in arrays)
    return largest * math.sqrt(squares)
