"""What a server without a compiler says: how fast it is here, and which tasks are too large for that."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from fsl_async import kernels
from fsl_async.bin_count import planned
from fsl_async.geometry import geometry_of
from fsl_async.task import Task

TREES, DEPTH = 512, 7
LONG_SECONDS = 1.0
"""So long may one client's submission take on one core before the operator is warned."""

UNCOMPILED = "nothing is compiled here, for want of numba or of a processor with AES"
INSTALL = "pip install 'fsl-async[server]' for a server that computes ten times as fast and more"


@cache
def measured_leaves(verified: bool = True) -> float:
    """Leaves of trees, made into shares, a second of one core; measured once, for all tasks of a process.

    Args:
        verified: whether the trees are proved as well, as in a task that is `verified`.
    """
    keys = kernels.key_schedule(bytes(16))
    roots = kernels.keystream(bytes(16), nonce=0, count=TREES)
    tree = kernels.Tree(np.zeros((DEPTH, TREES, 2), dtype=np.uint64))
    hints = np.zeros((1, TREES, 2), dtype=np.uint64)
    evaluation = kernels.Evaluation(keys, roots, tree, keys, hints, 64)
    sums = np.zeros((1, 2**DEPTH, 1, TREES, 2), dtype=np.uint64)
    if verified:
        leaves = kernels.keystream(bytes(16), nonce=1, count=2**DEPTH)
        checks = kernels.Verification(keys, leaves, leaves, np.zeros_like(roots))
        add = kernels.verifying_adder(evaluation, checks, sums, np.zeros_like(roots))
    else:
        add = kernels.adder(evaluation, sums)
    started = time.thread_time()
    add(0, 0, TREES)
    return TREES * (1 << DEPTH) / (time.thread_time() - started)


def leaves_of(task: Task) -> int:
    """Leaves of all trees of one client in a round over all rows."""
    shape = planned(task)
    forests = [forest for _, block in shape.sparse_blocks() for forest in geometry_of(shape, block).forests]
    return sum(forest.trees * forest.leaves for forest in forests)


def too_large(task: Task, rate: float) -> str:
    """Why a task should have a server with a compiler; empty where so many leaves a second will do."""
    leaves = leaves_of(task)
    if leaves <= rate * LONG_SECONDS:
        return ""
    return (
        f"{UNCOMPILED}: a submission of {leaves / 1e6:,.1f} million leaves takes {leaves / rate:,.1f} s of a core "
        f"at {rate / 1e6:,.1f} million a second; {INSTALL}"
    )
