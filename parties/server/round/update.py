"""From two shares to the update, and from the update to the new model; in a union round, to the union."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.config import RoundConfig
from fsl_async.digests import Buffer
from fsl_async.model_numbers import applied
from fsl_async.server.aggregation import split_share
from fsl_async.server.contributions import check_contributions
from fsl_async.task import Sparse
from fsl_async.union import union_rows
from parties.outcome import Model

Combined: TypeAlias = tuple[Model, Model, Model, Model]
"""The update as numbers, the same as signed ring integers, the union, and the model after the round."""


def combine(config: RoundConfig, model: Model, union: Model, ours: Buffer, theirs: Buffer, clients: int) -> Combined:
    """Add both servers' shares and apply the sum; in a union round, read the union off it instead.

    Args:
        config: the round.
        model: before the round.
        union: by sparse block, the rows that the round is aligned on; empty if it is not aligned.
        ours: one share of the sum.
        theirs: the other share.
        clients: how many clients are in the sum.

    Raises:
        ExcessError: the sum is more than so many clients can have contributed.
        BeyondDtypeError: a block of the model cannot hold the result.
    """
    update, elements = _sums(config, ours, theirs)
    if config.protocol == "psu":
        return {}, {}, {name: union_rows(sums) for name, sums in elements.items()}, model
    blocks = {block.name: block for _, block in config.task.sparse_blocks() if config.in_ranks(block.name)}
    update, elements = (
        {name: _spread(rows, union[name], blocks[name]) if name in blocks else rows for name, rows in arrays.items()}
        for arrays in (update, elements)
    )
    check_contributions(config.task, elements, clients)
    return update, elements, union, _updated(config, model, update, elements)


def _sums(config: RoundConfig, ours: Buffer, theirs: Buffer) -> tuple[Model, Model]:
    ring = config.shape.ring
    mine, other = split_share(config.shape, ours), split_share(config.shape, theirs)
    total = {name: ring.add(mine[name], other[name]) for name in mine}
    return (
        {name: ring.decode(elements) for name, elements in total.items()},
        {name: ring.to_integers(elements) for name, elements in total.items()},
    )


def _updated(config: RoundConfig, model: Model, update: Model, elements: Model) -> Model:
    """The model after the sum is added."""
    ring = config.shape.ring
    return model | {name: applied(ring, name, model[name], update[name], elements[name]) for name in update}


def _spread(rows: npt.NDArray[Any], union: npt.NDArray[np.uint32], block: Sparse) -> npt.NDArray[Any]:
    """Put the rows, which are in the order of the union, in their places among all rows of the block."""
    everywhere = np.zeros((block.rows, block.width), dtype=rows.dtype)
    everywhere[union] = rows[: len(union)]
    return everywhere
