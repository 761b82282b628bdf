"""What is compared: sizes, made changes, and the figures of one round; in numpy alone, which both environments have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SEED = 41
SCALE = 0.01
"""The standard deviation of a change."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One round of some clients.

    Attributes:
        weights: m, of the whole model.
        share: the part of them, in thousandths, that one client changes; 1000 is a dense model.
        width: the weights that lie side by side in a row, and are changed together.
        clients: who take part.
        dropped: how many of them leave after they have begun, and before they send their changes.
    """

    weights: int
    share: int
    width: int = 1
    clients: int = 5
    dropped: int = 0

    @property
    def rows(self) -> int:
        """Rows of the model."""
        return self.weights // self.width

    @property
    def select(self) -> int:
        """Rows that a client changes."""
        return -(-self.rows * self.share // 1000)

    @property
    def dense(self) -> bool:
        """Whether a client changes all."""
        return self.share == 1000

    @property
    def counted(self) -> int:
        """Clients whose changes reach the sum."""
        return self.clients - self.dropped

    def changes(self, client: int) -> tuple[Array, Array]:
        """A client's rows in ascending order, and their changes as float32 (select, width); equal calls, equal data."""
        generator = np.random.default_rng((SEED, self.weights, self.share, self.width, client))
        rows = np.sort(generator.permutation(self.rows)[: self.select])
        return rows, (SCALE * generator.standard_normal((self.select, self.width))).astype(np.float32)

    def full(self, client: int) -> Array:
        """The same over the whole model: zeros where nothing changes, float32 (rows, width)."""
        rows, changes = self.changes(client)
        whole = np.zeros((self.rows, self.width), np.float32)
        whole[rows] = changes
        return whole

    def mean(self) -> Array:
        """The exact mean of those that are counted, in float64 (rows, width)."""
        total = np.zeros((self.rows, self.width))
        for client in range(self.counted):
            rows, changes = self.changes(client)
            total[rows] += changes
        return total / self.counted


@dataclass(frozen=True)
class Figures:
    """One round, as it was measured.

    Attributes:
        client: processor seconds of one client, the mean of all that stayed.
        server: processor seconds of one server, for each client.
        up: bytes that one client sends.
        down: bytes that it receives.
        largest_error: the largest distance of the mean from the exact one.
        typical_error: the root of the mean square of all distances.
        between: bulk bytes that the servers send each other for each client.
    """

    client: float
    server: float
    up: int
    down: int
    largest_error: float
    typical_error: float
    between: int = 0


def errors(mean: Array, exact: Array) -> tuple[float, float]:
    """The largest distance, and the root of the mean square."""
    distance = np.abs(np.asarray(mean, np.float64).reshape(exact.shape) - exact)
    return float(distance.max()), float(np.sqrt(np.mean(distance**2)))


THOUSANDTHS = (10, 100)
WIDTHS = (1, 16)


def cells(*weights: int) -> Iterator[Case]:
    """The table's: for each size of the model, sparse changes in rows of 1 and of 16, then a dense model."""
    for size in weights:
        for share in THOUSANDTHS:
            for width in WIDTHS:
                yield Case(size, share, width)
        yield Case(size, 1000)


CLIPPED = (9.0, 100.0, -1000.0)
"""The example of values that SecAgg+ clips: every client sends these."""
