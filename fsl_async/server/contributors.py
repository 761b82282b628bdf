"""How many clients contribute to each row, and which rows are opened therefore.

Every tree carries a count of 1 on its leaf, beside the row's elements (see `geometry.Forest`). The counts of all
counted clients add up, bin by bin, as their updates do. The two servers open the counts before they form their shares
of the sum: what is not opened then was never shared.

Where servers take the mean of each row, they divide by the same counts (`row_counts`).

Rules: a share of the counts is one 32-bit word for each row, in the order of the task's blocks; both servers choose the
rows by the same function of both shares. What two honest servers hold never adds up to more than the counted clients'
trees, since each tree was proved to count once: a count beyond that shows that the other server has lied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt

import numpy as np
import numpy.typing as npt

from fsl_async.digests import Buffer
from fsl_async.geometry import SEGMENTS, geometry_of
from fsl_async.privacy.doses import largest_noise
from fsl_async.task import Sparse, Task
from fsl_async.wire.public_part import ALL_ROWS, OpenedRows

Counts = npt.NDArray[np.int32]

ROWS_AT_ONCE = 2**18
"""Rows whose counts are looked at at a time."""


class FalseCountError(ArithmeticError):
    """The counts are none that the counted clients can have; the message names a row, but no count."""


def opened_rows(task: Task, shares: Sequence[Buffer]) -> OpenedRows:
    """The rows that both servers' shares of the counts open.

    Args:
        task: the task as the round works on it.
        shares: S0's and S1's, `counts_bytes` each; none where contributors are not counted.

    Returns:
        By sparse block, the rows with at least `min_contributors`, ascending.
    """
    least = task.min_contributors
    if least is None:
        return ALL_ROWS
    opened = {block.name: [np.empty(0, dtype=np.uint32)] for _, block in task.sparse_blocks()}
    for block, first, counts in _parts(task, shares):
        opened[block.name].append(np.flatnonzero(counts >= least).astype(np.uint32) + np.uint32(first))
    return {name: np.concatenate(rows) for name, rows in opened.items()}


def row_counts(task: Task, shares: Sequence[Buffer]) -> dict[str, Counts]:
    """By sparse block, how many of the counted clients' trees stand on each row."""
    whole = {block.name: np.zeros(block.rows, dtype=np.int32) for _, block in task.sparse_blocks()}
    for block, first, counts in _parts(task, shares):
        whole[block.name][first : first + len(counts)] = counts
    return whole


def check_counts(task: Task, shares: Sequence[Buffer], clients: int) -> None:
    """Check that the counts are ones that this many clients can have.

    Args:
        task: as for `opened_rows`.
        shares: as for `opened_rows`; noise that servers add is allowed for, but with probability 2^-40.
        clients: how many are counted.

    Raises:
        FalseCountError: they are not.
    """
    noise = task.doses.counts
    reach = largest_noise(noise, sum(block.rows for _, block in task.sparse_blocks()))
    together = 0
    for block, first, counts in _parts(task, shares):
        most = clients * (SEGMENTS + block.stash)
        beyond = (counts < -reach) | (counts > most + reach)
        if beyond.any():
            row = first + int(np.argmax(beyond))
            raise FalseCountError(
                f"the count of row {row} of block {block.name!r} is none that {clients} clients can have"
            )
        together = int(counts.sum(dtype=np.int64)) + (together if first else 0)
        of_all = clients * geometry_of(task, block).trees + largest_noise(noise * (isqrt(block.rows) + 1), 1)
        if first + len(counts) == block.rows and together > of_all:
            raise FalseCountError(
                f"the counts of block {block.name!r} are together more than {clients} clients can have"
            )


def _parts(task: Task, shares: Sequence[Buffer]) -> Iterator[tuple[Sparse, int, Counts]]:
    """Both shares added, a range of rows at a time: the block, the first of its rows, and their counts."""
    ours, theirs = (np.frombuffer(share, dtype="<u4") for share in shares)
    before = 0
    for _, block in task.sparse_blocks():
        for first in range(0, block.rows, ROWS_AT_ONCE):
            rows = slice(before + first, before + min(first + ROWS_AT_ONCE, block.rows))
            yield block, first, (ours[rows] + theirs[rows]).view(np.int32)
        before += block.rows
