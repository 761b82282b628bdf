"""What the clients of a top-k experiment share: how the model lies in blocks, and what each has not submitted yet.

A client downloads the whole model and trains it. Of a sparse block it submits the rows that changed most, by the sum of
their weights' absolute values; the others' changes it keeps, and adds them to its next ones (error feedback).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from examples.paper.accuracy.rounds import Arrays, Update, Wanted
from fsl_async import Ring, Task
from fsl_async.learning import ErrorFeedback, MegaElements, StateMapping, Table

RING = Ring(64, fraction_bits=32)
LARGEST = 1000.0
"""No client changes a weight by more."""


class TopK:
    """The blocks of a model, and the clients' feedback.

    Args:
        name: the task's.
        state: the first model, by tensor.
        groups: what is sparse, and how many rows a client submits; all else is one dense block.

    Attributes:
        model: by block, for the servers.
        task: the mean of all clients' changes is added to the model.
    """

    def __init__(
        self, name: str, state: Mapping[str, npt.NDArray[Any]], groups: Sequence[Table | MegaElements]
    ) -> None:
        self._mapping = StateMapping.of(state, groups)
        self._feedback: dict[int, ErrorFeedback] = {}
        self.model = self._mapping.model(state)
        self.task = Task(
            name=name,
            blocks=self._mapping.blocks,
            ring=RING,
            updates="any",
            apply="mean",
            largest=LARGEST,
            min_clients=2,
        )

    def wanted(self) -> Wanted:
        """Everything."""
        return {block.name: ... for block in self.task.blocks}

    def state(self, model: Mapping[str, npt.NDArray[Any]]) -> Arrays:
        """The model by tensor."""
        return dict(self._mapping.state(dict(model)))

    def update(self, client: int, before: Arrays, after: Arrays) -> Update:
        """What a client submits, which it then no longer keeps."""
        sent = self._feedback.get(client, ErrorFeedback()).compress(self._mapping.update(before, after), self.task)
        self._feedback[client] = sent.feedback
        return sent.update


def drawn(clients: int, per_round: int, seed: int, number: int) -> list[int]:
    """Who takes part in a round: all, or so many drawn of them."""
    if per_round >= clients:
        return list(range(clients))
    return sorted(np.random.default_rng([seed, number]).choice(clients, per_round, replace=False).tolist())
