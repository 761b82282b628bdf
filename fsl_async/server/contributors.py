"""How many clients contribute to each row, and which rows are opened therefore.

Every tree carries a count of 1 on its leaf, beside the row's elements (see `geometry.Forest`). The counts of all
counted clients add up, bin by bin, as their updates do. The two servers open the counts before they form their shares
of the sum: what is not opened then was never shared.

Rules: a share of the counts is one 32-bit word for each row, in the order of the task's blocks; both servers choose the
rows by the same function of both shares. What two honest servers hold never adds up to more than the counted clients'
trees, since each tree was proved to count once: a count beyond that shows that the other server has lied.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

import numpy as np
import numpy.typing as npt

from fsl_async.digests import Buffer
from fsl_async.geometry import SEGMENTS, geometry_of
from fsl_async.privacy.tails import largest_noise
from fsl_async.task import Task
from fsl_async.wire.public_part import ALL_ROWS, Opened

Counts = npt.NDArray[np.int32]


class FalseCountError(ArithmeticError):
    """The counts are none that the counted clients can have; the message names a row, but no count."""


def opened_rows(task: Task, shares: Sequence[Buffer]) -> Opened:
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
    return {name: np.flatnonzero(counts >= least).astype(np.uint32) for name, counts in _by_block(task, shares)}


def check_counts(task: Task, shares: Sequence[Buffer], clients: int) -> None:
    """Check that the counts are ones that this many clients can have.

    Args:
        task: as for `opened_rows`.
        shares: as for `opened_rows`; noise that servers add is allowed for, but with probability 2^-40.
        clients: how many are counted.

    Raises:
        FalseCountError: they are not.
    """
    blocks = {block.name: block for _, block in task.sparse_blocks()}
    noise = task.doses.counts
    reach = largest_noise(noise, sum(block.rows for block in blocks.values()))
    for name, counts in _by_block(task, shares):
        most = clients * (SEGMENTS + blocks[name].stash)
        beyond = (counts < -reach) | (counts > most + reach)
        if beyond.any():
            row = int(np.argmax(beyond))
            raise FalseCountError(f"the count of row {row} of block {name!r} is none that {clients} clients can have")
        of_all = clients * geometry_of(task, blocks[name]).trees + largest_noise(noise * (isqrt(len(counts)) + 1), 1)
        if int(counts.sum(dtype=np.int64)) > of_all:
            raise FalseCountError(f"the counts of block {name!r} are together more than {clients} clients can have")


def _by_block(task: Task, shares: Sequence[Buffer]) -> list[tuple[str, Counts]]:
    first, second = (np.frombuffer(share, dtype="<u4") for share in shares)
    blocks = [block for _, block in task.sparse_blocks()]
    ends = np.cumsum([block.rows for block in blocks])
    counts = (first + second).view(np.int32)
    return [(block.name, part) for block, part in zip(blocks, np.split(counts, ends[:-1]), strict=True)]
