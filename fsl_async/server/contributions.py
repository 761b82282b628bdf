"""How much a round's clients can have contributed to its sum, and the check that an opened sum is not more.

A client that keeps the protocol places each of its rows once, with values of at most the task's largest. So no weight
of an honest sum exceeds the number of counted clients times the largest value. There is no allowance for a client that
places one row in several bins or sends larger values, because neither is honest.

Where servers add noise, the most that it can be is added, which noise exceeds with probability 2^-40.

A sum beyond the bound shows that somebody has lied, but not who: a server can add anything to its share before it
commits, and nothing proves a client's values. A sum within the bound proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.task import Task


class ExcessError(ArithmeticError):
    """A sum is more than its clients can have contributed; the message names the first such weight, but no value."""


def check_contributions(task: Task, sums: Mapping[str, npt.NDArray[Any]], clients: int) -> None:
    """Check that an opened sum is one that this many clients can have contributed.

    Args:
        task: the task, whose largest value bounds what a client contributes to a weight.
        sums: by block, signed ring integers.
        clients: how many are in the sum.

    Raises:
        ExcessError: a weight is larger.
    """
    most = clients * task.largest_integer + task.noise_reach
    for name, weights in sums.items():
        if weights.size and not -most <= int(weights.min()) <= int(weights.max()) <= most:
            beyond = np.unravel_index(int(np.argmax((weights > most) | (weights < -most))), weights.shape)
            raise ExcessError(
                f"the sum of block {name!r} at {[int(index) for index in beyond]} is more than {clients} clients with "
                f"values of at most {task.largest_value:g} can have contributed"
            )
