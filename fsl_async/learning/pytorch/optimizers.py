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


def note_load(weight: torch.nn.Parameter, table: str) -> None:
    """Note that a table's parameter now holds other rows."""
    _, loads = getattr(weight, _LOADED, (table, 0))
    setattr(weight, _LOADED, (table, loads + 1))


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
    if before != loaded and optimizer.state.get(weight):
        raise StaleOptimizerError(
            f"table {loaded[0]!r}: this {type(optimizer).__name__} has moments of the rows that were held before; make "
            "a new optimizer in every round, after `load`"
        )
    seen[id(weight)] = loaded


register_optimizer_step_pre_hook(_check)
