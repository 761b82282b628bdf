"""Bytes that one client sends for a submission, counted on the channels of a round between parties in memory."""

from __future__ import annotations

from typing import Literal

import numpy as np
import trio

from examples.paper.cells import Run, Values
from fsl_async import Dense, Ring, Sparse, Task
from parties import simulate

SEED = 1
BLOCK = "weights"


def upload(run: Run) -> Values:
    """Bytes up of one submission, by protocol: semi-honest, verified, and the trivial one, which shares all weights.

    Parameters: `rows`, `select`, `bits`.
    """
    rows, select, bits = (run.parameters[name] for name in ("rows", "select", "bits"))
    sparse = Sparse(BLOCK, rows=rows, select=select)
    values: Values = {}
    for security in ("semi-honest", "verified"):
        values[security] = trio.run(_sent, _task(sparse, bits, security), rows, select)
        run.progress(len(values) / 3, security)
    values["trivial"] = trio.run(_sent, _task(Dense(BLOCK, size=rows), bits, "verified"), rows, select)
    return values


def _task(block: Sparse | Dense, bits: Literal[32, 64, 128], security: Literal["semi-honest", "verified"]) -> Task:
    ring = Ring(bits, fraction_bits=16)
    return Task(name="bytes", blocks=(block,), ring=ring, security=security, updates="any", min_clients=2)


async def _sent(task: Task, rows: int, select: int) -> int:
    """What the receipt of one submission says: all bytes of both channels, framing and encryption included."""
    (block,) = task.blocks
    shape = (rows, 1) if isinstance(block, Sparse) else (rows,)
    picked = np.random.default_rng(SEED).choice(rows, select, replace=False)
    async with (
        simulate(task, {BLOCK: np.zeros(shape, dtype=np.float32)}, SEED) as network,
        network.client("alice") as alice,
    ):
        update = (picked, np.ones((select, 1))) if isinstance(block, Sparse) else np.ones(rows)
        receipt = await alice.submit({BLOCK: update})
    return receipt.bytes_sent
