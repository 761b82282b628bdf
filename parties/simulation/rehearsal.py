"""Rounds in memory that have kernels compiled for the disk, in a process of its own: `parties.compiling` starts it.

It takes pickled tasks from its parent's pipe, and runs a round of each, smaller where the task is large.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import msgspec
import numpy as np

from fsl_async.options.taking_part import without_a_draw
from fsl_async.task import Sparse, Task
from parties.outcome import Retrieved
from parties.simulation.experiment import Turn, run_experiment

MOST_ROWS, MOST_SELECTED = 2**16, 512


def rehearse(task: Task) -> None:
    """Run a round of two clients with updates of zeros; kernels follow the types of what they take, not its size."""
    blocks = [
        msgspec.structs.replace(block, rows=min(block.rows, MOST_ROWS), select=min(block.select, MOST_SELECTED))
        if isinstance(block, Sparse)
        else block
        for block in task.blocks
    ]
    few = msgspec.structs.replace(
        without_a_draw(task.carrying(*blocks)), min_clients=2, max_clients=2, min_contributors=None, privacy=None
    )
    rows = {block.name: np.arange(block.select) for block in few.blocks if isinstance(block, Sparse)}

    def train(found: Retrieved, turn: Turn) -> dict[str, Any]:
        zeros = {name: np.zeros_like(found[name]) for name in found}
        return {name: (rows[name], values) if name in rows else values for name, values in zeros.items()}

    client = ({block.name: rows.get(block.name, ...) for block in few.blocks}, train)
    kind = np.float64 if few.ring.fraction_bits else np.int64
    model = {block.name: np.zeros(block.shape, kind) for block in few.blocks}
    run_experiment(few, model, {"one": client, "two": client}, 1)


if __name__ == "__main__":
    for each in pickle.loads(sys.stdin.buffer.read()):  # noqa: S301 - its parent has written it
        rehearse(each)
