"""The numbers of a model: which of them a task can learn, and how a sum is added to them.

Rules: both servers arrive at the same bytes or at the same refusal; nothing becomes infinite and nothing wraps. What a
dtype cannot hold exactly is rounded once, to the nearest: floats are added in double precision and then converted to
their own dtype; integers get the exact sum, rounded to a whole number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.ring import Elements, Ring
from fsl_async.task import Task

WEIGHTS_AT_ONCE = 2**18
"""To which a sum is added at a time: what is made of them meanwhile stays within a cache."""


class BeyondDtypeError(ArithmeticError):
    """A sum would take a block beyond what its dtype holds; the message names both, and no value."""


def check_numbers(task: Task, model: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that the task's sums can be added to a model's blocks; where nothing is added, any number may stand there.

    Args:
        task: the task.
        model: a block each, as `describe_model` takes them.

    Raises:
        MisuseError: a block holds floats and the ring has no fraction; or a weight is not a finite number; or a block
            holds integers, and the task has an average or an optimizer.
    """
    if task.protocol == "psr":
        return
    for name, array in model.items():
        if array.dtype.kind != "f" and (task.rule not in ("sum", "own") or task.optimizer):
            what = type(task.optimizer).__name__ if task.optimizer else f'apply = "{task.apply}"'
            raise MisuseError(
                f"model block {name!r} is of {array.dtype}, and {what} gives fractions; make it a block of floats, or "
                'let the task add sums (apply = "sum", without an optimizer)'
            )
        if array.dtype.kind != "f":
            continue
        if task.ring.fraction_bits == 0:
            raise MisuseError(
                f"model block {name!r} is of {array.dtype}, and the task's ring has no fraction bits, so no client "
                f"could submit a fraction; use Ring({task.ring.bits}, fraction_bits={task.ring.bits * 3 // 8}), "
                "or a block of integers"
            )
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            place = [int(index) for index in np.unravel_index(bad[0], array.shape)]
            raise MisuseError(
                f"model block {name!r}: {array[tuple(place)]} at {place} is not a finite number, and stays so "
                f"whatever is added; there are {len(bad):,} such weights"
            )


def narrow_blocks(task: Task, model: Mapping[str, npt.NDArray[Any]]) -> dict[str, float]:
    """The blocks whose dtype cannot hold what a single client may submit, with the largest that it holds."""
    most = {
        name: float(np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max)
        for name, array in model.items()
    }
    return {name: largest for name, largest in most.items() if task.largest_value > largest}


def applied(
    ring: Ring, name: str, array: npt.NDArray[Any], update: npt.NDArray[Any], elements: Elements
) -> npt.NDArray[Any]:
    """A block of the model after a sum is added.

    Args:
        ring: of the sum.
        name: the block's, for the error message.
        array: the block before.
        update: the sum, as `Ring.decode` gives it.
        elements: the same, as `Ring.to_integers` gives it.

    Raises:
        BeyondDtypeError: its dtype cannot hold the result.
    """
    after: npt.NDArray[Any]
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):  # looked at below
            after = (array.astype(np.float64) + update.reshape(array.shape)).astype(array.dtype)
        beyond = not np.isfinite(after).all()
    else:
        after, beyond = _added(array, _whole(elements, ring.fraction_bits).reshape(array.shape))
    if beyond:
        raise BeyondDtypeError(f"the sum would take block {name!r} beyond what {array.dtype} can hold")
    return after


def with_sum(ring: Ring, name: str, array: npt.NDArray[Any], total: Elements) -> npt.NDArray[Any]:
    """A block of the model after a sum is added, a range of rows at a time: beside the result it takes little memory.

    Args:
        ring: of the sum.
        name: the block's, for the error message.
        array: the block before.
        total: the sum, as elements of the ring.

    Raises:
        BeyondDtypeError: its dtype cannot hold the result.
    """
    after = np.empty_like(array, order="C")
    for rows in row_ranges(array):
        part = total[rows]
        after[rows] = applied(ring, name, array[rows], ring.decode(part), ring.to_integers(part))
    return after


def row_ranges(array: npt.NDArray[Any]) -> Iterator[slice]:
    """Ranges of an array's rows, of about `WEIGHTS_AT_ONCE` weights each."""
    step = max(1, WEIGHTS_AT_ONCE * len(array) // max(array.size, 1))
    return (slice(start, start + step) for start in range(0, len(array), step))


def _whole(elements: npt.NDArray[Any], shift: int) -> npt.NDArray[Any]:
    """Integers / 2^shift, rounded to the nearest whole number, ties to even, exactly."""
    if shift == 0:
        return elements
    whole: npt.NDArray[Any] = elements >> shift
    rest, half = elements & ((1 << shift) - 1), 1 << shift - 1
    up = (rest > half) | ((rest == half) & ((whole & 1) != 0))
    return np.asarray(whole + up.astype(whole.dtype))


def _added(array: npt.NDArray[Any], whole: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], bool]:
    """Their sum in the array's dtype, and whether that cannot hold it."""
    limits = np.iinfo(array.dtype)
    if whole.dtype.kind == "O" or array.dtype == np.uint64:  # beyond 64 bits with a sign: as Python's integers
        exact = array.astype(object) + whole.astype(object)
        beyond = bool(((exact < limits.min) | (exact > limits.max)).any())
        return array if beyond else exact.astype(array.dtype), beyond
    left, right = array.astype(np.int64), whole.astype(np.int64)
    total = left + right  # wraps where both have one sign and the sum has the other
    beyond = bool(((((left ^ total) & (right ^ total)) < 0) | (total < limits.min) | (total > limits.max)).any())
    return total.astype(array.dtype), beyond
