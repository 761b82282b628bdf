"""A model's own numbers: which of them a task can learn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.task import Task

__all__ = ["check_numbers", "narrow_blocks"]


def check_numbers(task: Task, model: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that the task's sums can be added to a model's blocks.

    Args:
        task: the task.
        model: a block each, as `describe_model` takes them.

    Raises:
        MisuseError: a block is of floats and the ring has no fraction; or a weight is not a finite number.
    """
    for name, array in model.items():
        if array.dtype.kind != "f":
            continue
        if task.ring.fraction_bits == 0:
            raise MisuseError(
                f"model block {name!r} is of {array.dtype}, and the task's ring has no fraction bits, so that nobody "
                f"could submit a fraction to it; take Ring({task.ring.bits}, fraction_bits={task.ring.bits * 3 // 8}), "
                "or a block of integers"
            )
        bad = np.flatnonzero(~np.isfinite(array))
        if len(bad):
            place = [int(index) for index in np.unravel_index(bad[0], array.shape)]
            raise MisuseError(
                f"model block {name!r}: {array[tuple(place)]} at {place} is not a finite number, and would stay so "
                f"whatever is added; {len(bad):,} such weights in all"
            )


def narrow_blocks(task: Task, model: Mapping[str, npt.NDArray[Any]]) -> dict[str, float]:
    """The blocks whose dtype cannot hold what a single client may submit, with the largest that it holds."""
    most = {
        name: float(np.finfo(array.dtype).max if array.dtype.kind == "f" else np.iinfo(array.dtype).max)
        for name, array in model.items()
    }
    return {name: largest for name, largest in most.items() if task.largest_value > largest}
