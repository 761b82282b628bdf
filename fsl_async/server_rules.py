"""What servers do with a round's sum, as a task says it: the average, the server's optimizer, a function of one's own.

Rules: the constants are checked when a value is made; one number has one encoding, so 1 and 1.0 give one task digest; a
function is named, never carried: "module:function", which each server imports for itself.

The arithmetic is in `fsl_async.server.rules`.

Source: McMahan, Moore, Ramage, Hampson, Agüera y Arcas, "Communication-Efficient Learning of Deep Networks from
Decentralized Data" (FedAvg); Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated
Visual Classification" (FedAvgM); Reddi et al., "Adaptive Federated Optimization", algorithm 2 (FedAdam).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec
import numpy.typing as npt

from fsl_async.errors import MisuseError

Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

AVERAGES: Final = ("sum", "mean", "weighted-mean", "row-mean")
"""What a task's `apply` may be, other than the name of a function."""

LARGEST_RATE = 1e9
SMALLEST_EPSILON, LARGEST_EPSILON = 1e-30, 1e30
LONGEST_NAME = 128

_NAME: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


class Sgd(msgspec.Struct, frozen=True, tag="sgd", tag_field="type", forbid_unknown_fields=True):
    """x ← x + rate·Δ, where Δ is the sum or the average. It keeps no state.

    Args:
        rate: the server's learning rate η, above 0.
    """

    rate: float

    def __post_init__(self) -> None:
        _check_rate(self)


class Momentum(msgspec.Struct, frozen=True, tag="momentum", tag_field="type", forbid_unknown_fields=True):
    """FedAvgM: v ← momentum·v + Δ, then x ← x + rate·v; v begins at 0.

    Args:
        rate: the server's learning rate η, above 0.
        momentum: β, from 0 to below 1.
    """

    rate: float
    momentum: float = 0.9

    def __post_init__(self) -> None:
        _check_rate(self)
        _check_decay(self, "momentum")


class Adam(msgspec.Struct, frozen=True, tag="adam", tag_field="type", forbid_unknown_fields=True):
    """FedAdam: m ← β₁·m + (1-β₁)·Δ, v ← β₂·v + (1-β₂)·Δ², then x ← x + rate·m / (√v + epsilon).

    As in algorithm 2 of its source there is no bias correction; m begins at 0 and v at epsilon².

    Args:
        rate: the server's learning rate η, above 0.
        beta1: β₁, from 0 to below 1.
        beta2: β₂, from 0 to below 1.
        epsilon: τ of the source, the degree of adaptivity, above 0: weights whose Δ is far smaller hardly move.
    """

    rate: float
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        _check_rate(self)
        _check_decay(self, "beta1")
        _check_decay(self, "beta2")
        _check_constant(self, "epsilon", SMALLEST_EPSILON, LARGEST_EPSILON)


Optimizer: TypeAlias = Sgd | Momentum | Adam


@dataclass(frozen=True)
class RoundFacts:
    """What a function of one's own is told of the round whose sum it applies.

    Attributes:
        number: the round's number.
        clients: how many clients are in the sum.
        weight: the sum of their weights; None where the task names no block of weights.
        state: the arrays that the function left here in the last round that was applied; what it leaves here now is
            stored with the model. Empty before the first.
    """

    number: int
    clients: int
    weight: float | None
    state: Arrays


OwnRule: TypeAlias = Callable[[Arrays, Arrays, RoundFacts], Arrays]
"""Takes the model, the sum and the facts, and returns the new model; see docs/server-rules.md."""


def optimizer_arrays(optimizer: Optimizer | None) -> int:
    """How many arrays of float64 an optimizer keeps for each block."""
    match optimizer:
        case Momentum():
            return 1
        case Adam():
            return 2
        case _:
            return 0


def check_apply(value: Any) -> str:
    """What a task stores of its `apply`: a word, or the name of a function.

    Raises:
        MisuseError: it is neither a word nor a function that can be named.
    """
    if callable(value):
        return _name_of(value)
    if isinstance(value, str) and (value in AVERAGES or (len(value) <= LONGEST_NAME and _NAME.fullmatch(value))):
        return value
    words = ", ".join(f'"{word}"' for word in AVERAGES)
    raise MisuseError(f'task: apply must be {words}, or a function as "module:function", not {value!r}')


def is_own(apply: str) -> bool:
    """Whether an `apply` names a function."""
    return ":" in apply


def _name_of(function: Callable[..., Any]) -> str:
    """The name of a function by which a server finds it again.

    Raises:
        MisuseError: it has none.
    """
    module, inner = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    found: Any = sys.modules.get(module or "")
    for part in inner.split("."):
        found = getattr(found, part, None)
    name = f"{module}:{inner}"
    if found is not function or not _NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise MisuseError(
            f"task: apply = {function!r} has no name by which a server could import it; define it with `def` at the "
            'top level of a module, and give it as that function or as "module:function" (no lambda, no function '
            "within a function)"
        )
    return name


def _check_rate(optimizer: Optimizer) -> None:
    _check_constant(optimizer, "rate", 0.0, LARGEST_RATE)


def _check_constant(optimizer: Optimizer, field: str, low: float, high: float) -> None:
    """Check a constant above `low`, or at it where that is not 0."""
    value = getattr(optimizer, field)
    if type(value) not in (int, float) or not max(low, 5e-324) <= value <= high:
        bound = f"from {low:g}" if low else "above 0"
        raise MisuseError(f"{_kind(optimizer)}: {field} must be a number {bound} to {high:g}, not {value!r}")
    msgspec.structs.force_setattr(optimizer, field, float(value))


def _check_decay(optimizer: Optimizer, field: str) -> None:
    value = getattr(optimizer, field)
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise MisuseError(f"{_kind(optimizer)}: {field} must be a number from 0 to below 1, not {value!r}")
    msgspec.structs.force_setattr(optimizer, field, float(value))


def _kind(optimizer: Optimizer) -> str:
    return f"optimizer {type(optimizer).__name__}"
