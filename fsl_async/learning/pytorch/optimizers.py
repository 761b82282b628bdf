"""Optimizers and the rows that a table holds: the moments of one round's rows are not applied to another round's.

A table keeps its parameter when other rows are loaded, so that an optimizer without a state may live as long as the
model. One with a state (momentum, Adam) holds numbers of the rows that were there before. Rule: every step of such an
optimizer is preceded by a look at whether the rows are those of its last step.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsl_async.learning.pytorch.errors import StaleOptimizerError

_LOADED = "_fsl_async_loaded"
"""The attribute of a parameter that says which table it is, and how often rows were loaded into it."""

_seen: WeakKeyDictionary[torch.optim.Optimizer, dict[int, tuple[str, int]]] = WeakKeyDictionary()


def note_load(weight: torch.Tensor, table: str, loads: int) -> None:
    """Note which table a parameter is of, and how often rows were loaded into it.

    A copy of a parameter has no notes, so they are made again at every look-up.
    """
    setattr(weight, _LOADED, (table, loads))


def _check(optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Refuse the step of an optimizer whose state is of rows that are no longer there."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
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


def _has_moments(optimizer: torch.optim.Optimizer, weight: Any) -> bool:
    """Whether its state has numbers of a parameter; L-BFGS has those of all parameters under its first."""
    return bool(optimizer.state if isinstance(optimizer, torch.optim.LBFGS) else optimizer.state.get(weight))


register_optimizer_step_pre_hook(_check)
