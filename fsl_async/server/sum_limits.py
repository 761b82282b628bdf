"""How much a round's clients can have contributed to its sum, and the check that an opened sum is not more.

A client that keeps the protocol places each of its rows once, with values of at most the task's largest. So no weight
of an honest sum exceeds the number of counted clients times the largest value. There is no allowance for a client that
places one row in several bins or sends larger values, because neither is honest.

Where servers add noise, the most that it can be is added, which noise exceeds with probability 2^-40.

A sum beyond that shows that somebody has lied, but not who: a server can add anything to its share before it commits,
and without a `bound` nothing proves a client's values. A sum within it proves nothing.

Where the task has a `bound`, every counted client has proved the norm of its payloads. At most 3 + σ of them meet in
one row, so a client adds a vector of √(3 + σ) times that norm at most; if the whole sum is longer than all of them
together, one of the two servers has lied. The same holds of a sum of weights, where clients have proved theirs.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.bin_count import planned
from fsl_async.bounds import BoundTerms, terms_of
from fsl_async.geometry import SEGMENTS
from fsl_async.privacy.doses import noise_norm
from fsl_async.task import Task


class ExcessError(ArithmeticError):
    """A sum is more than its clients can have contributed; the message names the first such weight, but no value."""


class BeyondNormsError(ExcessError):
    """A sum is more than what its clients have proved: the server that finds it knows that the other one lied."""


class ContributionCheck:
    """The check that a sum, which is opened piece by piece, is one that this many clients can have contributed.

        check = ContributionCheck(task, clients=3)
        check.take("items", weights, np.arange(1000, 2000))
        check.finish()

    Args:
        task: the task, whose largest value bounds what a client contributes to a weight.
        clients: how many are in the sum.
    """

    def __init__(self, task: Task, clients: int) -> None:
        self._task = task
        self._clients = clients
        self._terms = terms_of(planned(task))
        self._most = clients * task.largest_integer + task.noise_reach
        self._squares = 0
        self._weight = 0
        self._beyond: str | None = None

    def take(self, name: str, weights: npt.NDArray[Any], numbers: npt.NDArray[Any] | None = None) -> None:
        """Look at a piece of a block's sum.

        Args:
            name: the block's.
            weights: signed ring integers.
            numbers: which of the block's rows they are; none where they are all of them.
        """
        if self._terms is not None:
            self._squares += _sum_of_squares(weights)
        if name == self._task.weights:
            self._weight += sum(weights.reshape(-1).tolist())
        most = self._most
        if self._beyond is None and weights.size and not -most <= int(weights.min()) <= int(weights.max()) <= most:
            first = np.unravel_index(int(np.argmax((weights > most) | (weights < -most))), weights.shape)
            row, *column = (int(index) for index in first)
            self._beyond = (
                f"the sum of block {name!r} at {[row if numbers is None else int(numbers[row]), *column]} is more than "
                f"{self._clients} clients with values of at most {self._task.largest_value:g} can have contributed"
            )

    def finish(self) -> None:
        """Judge what was looked at.

        Norms come first: what is beyond them says who has lied, and a weight that is too large may not.

        Raises:
            BeyondNormsError: clients prove their norms, and the whole sum is longer than they allow; or they prove
                their weights, and these sum up to what they cannot.
            ExcessError: otherwise, a weight is larger.
        """
        task, clients = self._task, self._clients
        if self._terms is not None and self._squares > largest_square(task, self._terms, clients):
            raise BeyondNormsError(
                f"the sum of all blocks is longer than {clients} clients with updates of an L2 norm of at most "
                f"{task.bound:g} can have made it, and each has proved its own: one of the servers has added to its "
                "share"
            )
        reach = task.noise_reach
        if task.largest_weight and not -reach <= self._weight <= clients * task.largest_weight_integer + reach:
            raise BeyondNormsError(
                f"the weights sum up to what {clients} clients of 0 to {task.largest_weight:g} each cannot weigh, and "
                "each has proved its own: one of the servers has added to its share"
            )
        if self._beyond is not None:
            raise ExcessError(self._beyond)


def largest_square(task: Task, terms: BoundTerms, clients: int) -> int:
    """The most that the squares of all weights of a sum come to, in ring integers.

    Args:
        task: the task.
        terms: of its bound.
        clients: how many are in the sum; each has proved its bound.
    """
    stash = max((block.stash for _, block in task.sparse_blocks()), default=0)
    meet = SEGMENTS + stash if any(task.sparse_blocks()) else 1
    of_clients = clients**2 * meet * terms.guaranteed_square
    if task.privacy is None:
        return of_clients
    weights = sum(block.weights for block in task.blocks)
    return (isqrt(of_clients) + 1 + noise_norm(task.doses.values, weights)) ** 2


_LIMB, _LIMBS = 22, 3
_AT_ONCE = 2**18
"""So many products of two limbs have a sum below 2^62."""


def _sum_of_squares(weights: npt.NDArray[Any]) -> int:
    """Exact, whatever the weights are."""
    flat = weights.reshape(-1)
    if flat.dtype == object:
        return sum(int(weight) ** 2 for weight in flat)
    return sum(_part_of_squares(flat[first : first + _AT_ONCE]) for first in range(0, len(flat), _AT_ONCE))


def _part_of_squares(weights: npt.NDArray[Any]) -> int:
    """The sum of at most `_AT_ONCE` squares, by limbs of the absolute values: -2^63 is its own, without a sign."""
    whole = np.abs(weights.astype(np.int64)).view(np.uint64)
    limbs = [whole >> np.uint64(_LIMB * place) & np.uint64(2**_LIMB - 1) for place in range(_LIMBS)]
    return sum(
        int(np.dot(limbs[left], limbs[right])) << _LIMB * (left + right)
        for left in range(_LIMBS)
        for right in range(_LIMBS)
    )
