"""The whole system in the clear: the obvious counterpart of every scenario, and random tasks to play.

Sums are Python integers, rounding is that of exact fractions; nothing here is shared with the package but the task.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from fsl_async import Dense, Ring, Sparse, Task

Rows = dict[str, np.ndarray]
Update = Mapping[str, Any]


@dataclass
class Clear:
    """A model that learns in the clear."""

    task: Task
    model: dict[str, np.ndarray]
    sums: dict[str, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.sums = {block.name: np.zeros(shape_of(block), dtype=object) for block in self.task.blocks}

    def add(self, update: Update) -> None:
        """One client's update."""
        for name, values in update.items():
            if isinstance(self.task.block(name), Dense):
                self.sums[name] += self._integers(values)
            else:
                rows, changes = values
                for row, change in zip(rows, self._integers(changes), strict=True):
                    self.sums[name][row] += change

    def settle(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """End the round: the sums as integers and as numbers; the model takes them up."""
        sums = self.sums
        unit = 2**self.task.ring.fraction_bits
        update = {name: total if unit == 1 else (total / unit).astype(np.float64) for name, total in sums.items()}
        for name, array in self.model.items():
            if array.dtype.kind == "f":
                new = array.astype(np.float64) + update[name].reshape(array.shape)
            else:  # the sum is rounded, then added
                whole = [round(Fraction(total, unit)) for total in sums[name].flat]
                new = array.astype(object) + np.array(whole, dtype=object).reshape(array.shape)
            self.model[name] = new.astype(array.dtype)
        self._begin()
        return sums, update

    def _integers(self, values: np.ndarray) -> np.ndarray:
        values = np.asarray(values)
        scaled = [round(Fraction(value.item()) * 2**self.task.ring.fraction_bits) for value in values.flat]
        return np.array(scaled, dtype=object).reshape(values.shape)


def shape_of(block: Sparse | Dense) -> tuple[int, ...]:
    return (block.size,) if isinstance(block, Dense) else (block.rows, block.width)


# ---- random tasks, models, selections and updates

RINGS = (Ring(32, fraction_bits=8), Ring(64, fraction_bits=24), Ring(128, fraction_bits=40), Ring(64), Ring(32))


def random_task(rng: np.random.Generator, *, widths: tuple[int, int] = (1, 4), stash: int = 0, **fields: Any) -> Task:
    """One to three sparse blocks and up to two dense ones, over any ring."""
    blocks: list[Sparse | Dense] = []
    for number in range(rng.integers(1, 4)):
        rows = int(rng.integers(1, 250))
        select, width = int(rng.integers(1, min(rows, 12) + 1)), int(rng.integers(*widths))
        blocks.append(Sparse(f"sparse {number}", rows=rows, select=select, width=width, stash=stash))
    for number in range(rng.integers(0, 3)):
        blocks.insert(int(rng.integers(len(blocks) + 1)), Dense(f"dense {number}", size=int(rng.integers(1, 20))))
    updates = "retrieved" if fields.get("selection") == "fixed" else str(rng.choice(["retrieved", "any"]))
    security = str(rng.choice(["verified", "semi-honest"]))
    ring = RINGS[rng.integers(len(RINGS))]
    choices = {"updates": updates, "security": security, "ring": ring} | fields
    return Task(name="random", blocks=tuple(blocks), min_clients=2, max_clients=6, **choices)


def random_model(rng: np.random.Generator, task: Task) -> dict[str, np.ndarray]:
    """Floats; integers where the ring has no fraction."""
    dtypes = ("i2", "i4", "i8") if task.ring.fraction_bits == 0 else ("f4", "f8")
    model = {}
    for block in task.blocks:
        values = 100 * rng.normal(size=shape_of(block))
        model[block.name] = values.astype(rng.choice(dtypes))
    return model


def random_rows(rng: np.random.Generator, task: Task) -> Rows:
    """A selection of every sparse block; some are empty, some are full."""
    selection = {}
    for _, block in task.sparse_blocks():
        count = int(rng.choice([0, block.select, rng.integers(0, block.select + 1)]))
        selection[block.name] = rng.permutation(block.rows)[:count]
    return selection


def some(rng: np.random.Generator, rows: Rows) -> Rows:
    """Some of the blocks, some of their rows, in another order."""
    return {
        name: rng.permutation(of)[: rng.integers(0, len(of) + 1)] for name, of in rows.items() if rng.random() < 0.8
    }


def random_update(rng: np.random.Generator, task: Task, rows: Rows) -> dict[str, Any]:
    """Values for some rows, and for some dense blocks."""

    def values(shape: tuple[int, ...]) -> np.ndarray:
        whole = task.ring.fraction_bits == 0 or rng.random() < 0.2
        return rng.integers(-500, 500, shape) if whole else 10 * rng.normal(size=shape)

    update: dict[str, Any] = {}
    for block in task.blocks:
        if isinstance(block, Dense):
            if rng.random() < 0.7:
                update[block.name] = values((block.size,))
        elif block.name in rows:
            update[block.name] = (rows[block.name], values((len(rows[block.name]), block.width)))
    return update
