"""Optimizers and the rows that a table holds: one that trains other rows, or none of them, is refused.

An optimizer that was made before `hold` steps the table that `hold` has taken out, which changes nothing.

A table keeps its parameter when other rows are loaded, so that an optimizer without a state may live as long as the
model. One with a state (momentum, Adam) holds numbers of the rows that were there before. Rule: every step of any
optimizer is preceded by a look at whether its tables are held, and whether the rows are those of its last step.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsl_async.errors import MisuseError

_LOADED = "_fsl_async_loaded"
"""The attribute of a parameter that says which table it is, and how often rows were loaded into it."""

_STEPPED = "_fsl_async_stepped"
"""The attribute of a parameter that says of which load the rows are that an optimizer has stepped."""

_REPLACED = "_fsl_async_replaced"
"""The attribute of a parameter that `hold` has taken out of a model: the table that was put in its place."""

_seen: WeakKeyDictionary[torch.optim.Optimizer, dict[int, tuple[str, int]]] = WeakKeyDictionary()


class StaleOptimizerError(MisuseError):
    """An optimizer is of other rows than a table holds: made before `hold`, or with moments of an earlier round.

    Make an optimizer for every round, once its rows are loaded:

        submodel.load(wanted, retrieved)
        optimizer = torch.optim.Adam(model.parameters())
    """


def note_load(weight: torch.Tensor, table: str, loads: int) -> None:
    """Note which table a parameter is of, and how often rows were loaded into it.

    A copy of a parameter has no notes, so they are made again at every look-up.
    """
    setattr(weight, _LOADED, (table, loads))


def note_replaced(weight: torch.Tensor, table: str) -> None:
    """Note that a parameter is in no model any more, because a held table has taken its place."""
    setattr(weight, _REPLACED, table)


def was_stepped(weight: torch.Tensor) -> bool:
    """Whether an optimizer has stepped the rows that a parameter holds now."""
    return getattr(weight, _STEPPED, None) == getattr(weight, _LOADED, 0)


def _check(optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Refuse the step of an optimizer whose table or whose state is of rows that are no longer there."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if table := getattr(weight, _REPLACED, ""):
                raise StaleOptimizerError(
                    f"table {table!r}: this {type(optimizer).__name__} was made before `hold`, and would train a table "
                    "that is no longer in the model; make it after `hold` and `load`"
                )
            loaded = getattr(weight, _LOADED, None)
            if loaded is not None:
                _check_weight(optimizer, weight, loaded)


def _check_weight(optimizer: torch.optim.Optimizer, weight: Any, loaded: tuple[str, int]) -> None:
    seen = _seen.setdefault(optimizer, {})
    before = seen.get(id(weight), loaded)
    if before != loaded and _has_moments(optimizer, weight):
        raise StaleOptimizerError(
            f"table {loaded[0]!r}: this {type(optimizer).__name__} has moments of the rows that were held before; make "
            "a new optimizer in every round, after `load`"
        )
    seen[id(weight)] = loaded
    setattr(weight, _STEPPED, loaded)


def _has_moments(optimizer: torch.optim.Optimizer, weight: Any) -> bool:
    """Whether its state has numbers of a parameter; L-BFGS has those of all parameters under its first."""
    return bool(optimizer.state if isinstance(optimizer, torch.optim.LBFGS) else optimizer.state.get(weight))


register_optimizer_step_pre_hook(_check)
