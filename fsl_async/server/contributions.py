"""What a round's clients can have contributed to its sum, and the check that an opened sum is no more.

A client that keeps the protocol places each of its rows once, with weights of at most the task's largest; so no weight
of an honest sum exceeds the counted clients times the largest. Nothing is added for a client that places one row in
several bins, or values beyond the largest: neither is honest, and their sum is not the honest clients'.

A sum beyond that shows that somebody has lied, and not who: a server can add what it likes to its share before it
commits, and a client's values are proved by nothing. A sum within it proves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.task import Task


class ExcessError(ArithmeticError):
    """A sum is more than its clients can have contributed; the message names the first weight, and no value."""


def check_contributions(task: Task, sums: Mapping[str, npt.NDArray[Any]], clients: int) -> None:
    """Check that an opened sum is one that so many clients can have.

    Args:
        task: the task, whose largest value bounds what a client contributes to a weight.
        sums: by block, signed ring integers.
        clients: how many are in the sum.

    Raises:
        ExcessError: a weight is more.
    """
    most = clients * task.largest_integer
    for name, weights in sums.items():
        if weights.size and not -most <= int(weights.min()) <= int(weights.max()) <= most:
            beyond = np.unravel_index(int(np.argmax((weights > most) | (weights < -most))), weights.shape)
            raise ExcessError(
                f"the sum of block {name!r} at {[int(index) for index in beyond]} is more than {clients} clients with "
                f"values of at most {task.largest_value:g} can have contributed"
            )
