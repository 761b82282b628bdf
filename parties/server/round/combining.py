"""From two shares to the sum, piece by piece; in a union round, to the union.

Rule: of a sum, the elements alone are kept, 4 to 16 bytes of a weight; the numbers that they stand for are made of them
when they are needed, a range at a time where that will do.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial

import numpy as np

from fsl_async.digests import Buffer
from fsl_async.geometry import RowNumbers
from fsl_async.privacy.threshold import chooses_rows, kept_rows
from fsl_async.ring import Elements, Ring
from fsl_async.server.sum_limits import ContributionCheck
from fsl_async.server.sums import numbered
from fsl_async.task import Task
from fsl_async.union import union_rows
from fsl_async.wire.pieces import Span
from fsl_async.wire.public_part import OpenedRows
from parties.outcome import LazyArrays, Model
from parties.server.round.engine import RoundStart


@dataclass(frozen=True)
class Sums:
    """What both shares give together.

    Attributes:
        ring: of the sum.
        totals: by block of the model, the sum as elements of the ring; empty in a union round.
        union: by sparse block, the union that was found, or that the round is aligned on.
        clients: how many clients are in the sum.
    """

    ring: Ring
    totals: dict[str, Elements]
    union: Model
    clients: int

    @property
    def update(self) -> LazyArrays:
        """By block, the sum as numbers, made when it is first asked for."""
        return LazyArrays({name: partial(self.ring.decode, total) for name, total in self.totals.items()})

    @property
    def elements(self) -> LazyArrays:
        """The same as signed ring integers."""
        return LazyArrays({name: partial(self.ring.to_integers, total) for name, total in self.totals.items()})


class Combining:
    """Both servers' shares as they are added.

    Args:
        start: what the round began with.
        opened: by sparse block, the rows that the shares are of; the sum of the others is left at 0.
        clients: how many clients are in the sum.
    """

    def __init__(self, start: RoundStart, opened: OpenedRows, clients: int) -> None:
        config, self._start, self._clients = start.config, start, clients
        self._shape, self._ring = config.shape, config.shape.ring
        self._names = [block.name for block in config.shape.blocks]
        self._sparse = {block.name for _, block in config.task.sparse_blocks()}
        self._found: defaultdict[str, list[RowNumbers]] = defaultdict(list)
        self._check = ContributionCheck(config.task, clients)
        self._sigma = _least_sigma(config.task)
        self._places: OpenedRows = {name: start.union[name] for name in self._sparse if config.in_ranks(name)} | dict(
            opened
        )
        blocks = () if config.protocol == "psu" else config.task.blocks
        self._totals = {block.name: self._ring.zeros(*block.shape) for block in blocks}

    def add(self, span: Span, ours: Buffer, theirs: Buffer) -> None:
        """Add one piece of either share.

        Args:
            span: what both have of the shares.
            ours: one of them.
            theirs: the other.
        """
        ring, name = self._ring, self._names[span.block]
        block = self._shape.blocks[span.block]
        shape = (span.stop - span.start, *block.shape[1:])
        total = ring.add(ring.from_bytes(ours, *shape), ring.from_bytes(theirs, *shape))
        if self._start.config.protocol == "psu":
            self._found[name].append(union_rows(ring.to_integers(total)) + np.uint32(span.start))
            return
        spread, within = name in self._places, slice(span.start, span.stop)
        rows = self._places[name][within] if spread else numbered(span.start, span.stop)
        signed = ring.to_integers(total[: len(rows)])  # an empty union moves one row, which is of nothing
        self._check.take(name, signed, rows)
        if self._sigma is not None and name in self._sparse:
            total[: len(rows)][~kept_rows(signed, self._sigma)] = 0
        self._totals[name][rows if spread else within] = total[: len(rows)]

    def finish(self) -> Sums:
        """What they give together; in a union round, the union is read off the sum.

        Raises:
            ExcessError: the sum is more than so many clients can have contributed.
        """
        if self._start.config.protocol == "psu":
            union = {name: np.concatenate([*self._found[name], _NO_ROWS]) for name in self._names}
            return Sums(self._ring, {}, union, self._clients)
        self._check.finish()
        return Sums(self._ring, self._totals, self._start.union, self._clients)


_NO_ROWS: RowNumbers = np.empty(0, dtype=np.uint32)


def _least_sigma(task: Task) -> int | None:
    """The noise of which a row's sum must be more, or it is set to 0; None where rows are kept as they are.

    Where rows are opened by the number of their contributors, that has chosen them already, unless the noise on these
    numbers is enough to open a row by itself.
    """
    least = task.min_contributors
    if task.privacy is None or (least is not None and chooses_rows(least, task.doses.counts)):
        return None
    return task.doses.values
