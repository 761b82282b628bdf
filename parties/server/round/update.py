"""From two shares to the sum, and from the sum to the new model; in a union round, to the union."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer
from fsl_async.model_numbers import applied
from fsl_async.privacy.threshold import chooses_rows, kept_rows
from fsl_async.server.aggregation import split_share
from fsl_async.server.contributions import check_contributions
from fsl_async.server.rules import average_and_step, own_step
from fsl_async.server_rules import OwnRule
from fsl_async.task import Sparse, Task
from fsl_async.union import union_rows
from fsl_async.wire.public_part import Opened
from parties.outcome import Model
from parties.server.round.start import RoundStart


@dataclass(frozen=True)
class Sums:
    """What both shares give together.

    Attributes:
        update: by block, the sum as numbers; empty in a union round.
        elements: the same as signed ring integers.
        union: by sparse block, the union that was found, or that the round is aligned on.
        clients: how many clients are in the sum.
    """

    update: Model
    elements: Model
    union: Model
    clients: int


@dataclass(frozen=True)
class Result:
    """The model after a round, and what the task's optimizer or own rule keeps beside it."""

    model: Model
    state: Model


def combine(begun: RoundStart, shares: tuple[Buffer, Buffer], opened: Opened, clients: int) -> Sums:
    """Add both servers' shares; in a union round, read the union off the sum.

    Args:
        begun: what the round began with.
        shares: of the sum; one and the other.
        opened: by sparse block, the rows that they are of; the sum of the others is left at 0.
        clients: how many clients are in the sum.

    Raises:
        ExcessError: the sum is more than so many clients can have contributed.
    """
    config, union = begun.config, begun.union
    update, elements = _sums(config, *shares, opened)
    if config.protocol == "psu":
        return Sums({}, {}, {name: union_rows(sums) for name, sums in elements.items()}, clients)
    blocks = {block.name: block for _, block in config.task.sparse_blocks()}
    places = {name: union[name] for name in blocks if config.in_ranks(name)} | dict(opened)
    update, elements = (
        {name: _spread(rows, places[name], blocks[name]) if name in places else rows for name, rows in arrays.items()}
        for arrays in (update, elements)
    )
    check_contributions(config.task, elements, clients)
    return _without_noise_rows(config.task, Sums(update, elements, union, clients))


def apply_sum(begun: RoundStart, rule: OwnRule | None, sums: Sums) -> Result:
    """Apply a sum as the task says.

    Raises:
        BeyondDtypeError: a block of the model cannot hold the result.
        NoWeightError: the clients' weights sum to 0.
        ExcessError: they sum to less.
        OwnRuleError: the task's own rule failed.
    """
    config, task, update = begun.config, begun.config.task, sums.update
    if config.protocol == "psu":
        return Result(begun.model, begun.state)
    if task.adds:
        ring, model = config.shape.ring, begun.model
        added = {name: applied(ring, name, model[name], update[name], sums.elements[name]) for name in update}
        return Result(model | added, {})
    if rule is not None:
        return Result(*own_step(task, rule, begun.model, update, begun.state, config.number, sums.clients))
    return Result(*average_and_step(task, begun.model, update, begun.state, sums.clients))


def _sums(config: RoundConfig, ours: Buffer, theirs: Buffer, opened: Opened) -> tuple[Model, Model]:
    ring = config.shape.ring
    mine, other = split_share(config.shape, ours, opened), split_share(config.shape, theirs, opened)
    total = {name: ring.add(mine[name], other[name]) for name in mine}
    return (
        {name: ring.decode(elements) for name, elements in total.items()},
        {name: ring.to_integers(elements) for name, elements in total.items()},
    )


def _without_noise_rows(task: Task, sums: Sums) -> Sums:
    """The sums with 0 in those rows of sparse blocks that are no more than the servers' noise.

    Where rows are opened by the number of their contributors, that has chosen them already, unless the noise on these
    numbers is enough to open a row by itself.
    """
    least = task.min_contributors
    if task.privacy is None or (least is not None and chooses_rows(least, task.doses.counts)):
        return sums
    update, elements = dict(sums.update), dict(sums.elements)
    for _, block in task.sparse_blocks():
        kept = kept_rows(elements[block.name], task.doses.values)[:, None]
        update[block.name], elements[block.name] = (
            np.where(kept, array[block.name], array[block.name].dtype.type(0)) for array in (update, elements)
        )
    return replace(sums, update=update, elements=elements)


def _spread(rows: npt.NDArray[Any], union: npt.NDArray[np.uint32], block: Sparse) -> npt.NDArray[Any]:
    """Put the rows of a union, or those that are opened, in their places among all rows of the block."""
    everywhere = np.zeros((block.rows, block.width), dtype=rows.dtype)
    everywhere[union] = rows[: len(union)]
    return everywhere
