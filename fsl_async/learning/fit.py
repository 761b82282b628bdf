"""Whether an update fits a task's ring, and what rounding takes from it: tensor by tensor, before anything is sent.

Rules: the ring decides (`Ring.misfits`) and rounds (`Ring.encode`); here, its verdict gets the name of a tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.learning.layouts import Layout
from fsl_async.learning.updates import flat_values, row_values
from fsl_async.task import Sparse, Task


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
