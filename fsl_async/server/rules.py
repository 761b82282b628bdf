"""How a sum changes the model where it is not simply added: averages, the server's optimizer, a function of one's own.

Rules: both servers arrive at the same bits on any processor, because averages and optimizers use +, −, ×, ÷ and √ in
float64 alone, each an array at a time, in the order in which it is written here: IEEE 754 leaves no choice. A block is
rounded to its own dtype once, at the end; the optimizer's state stays in float64. Nothing becomes infinite, and what is
refused changes neither the model nor the state.

A row that no client touched is part of the average as a 0, as in the sources, and so it is with the mean of each row:
its momentum and its moments decay in every round, and a row that has momentum still moves. (From the sum, a row that
nobody touched cannot be told from one whose updates cancel out.) A row that was never touched stays bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ldexp, sqrt
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from fsl_async.config import MODEL_DTYPES
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError
from fsl_async.model_numbers import BeyondDtypeError, row_ranges
from fsl_async.server.contributors import Counts
from fsl_async.server.sum_limits import ExcessError
from fsl_async.server_rules import Adam, Arrays, Momentum, Optimizer, OwnRule, RoundFacts, Sgd
from fsl_async.task import Task

MOST_ARRAYS = 128
"""Of a function's state."""

CERTAIN: Final = 4
"""Standard deviations of the noise in the sum of weights that the sum must have at least, where servers add noise."""

Doubles: TypeAlias = npt.NDArray[np.float64]


class NoWeightError(ArithmeticError):
    """The clients' weights sum to 0, or to no more than the servers' noise, so there is no average."""


class OwnRuleError(ArithmeticError):
    """A function of one's own failed, or returned what is no model; the message holds no value.

    What it raised, which may hold values, is the error's cause.
    """


def average_and_step(
    task: Task,
    model: Arrays,
    update: Arrays,
    state: Arrays,
    clients: int,
    contributors: Mapping[str, Counts] = MappingProxyType({}),
) -> tuple[Arrays, Arrays]:
    """The model and the optimizer's state after a sum, where the task has an average or an optimizer.

    Args:
        task: the task.
        model: before the round.
        update: by block, the sum as `Ring.decode` gives it.
        state: the optimizer's, before the round; empty before the first.
        clients: how many are in the sum.
        contributors: by sparse block, how many of them are in each row's sum; only for the mean of each row.

    Raises:
        NoWeightError: the clients' weights sum to 0.
        ExcessError: they sum to less.
        BeyondDtypeError: a block's dtype cannot hold the result, or float64 not the optimizer's state.
    """
    divisor = _divisor(task, update, clients)
    after: Arrays = dict(model)
    kept: Arrays = {}
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # looked at below
        for block in task.model_blocks:
            array, name = model[block.name], block.name
            change = update[name].reshape(array.shape)
            before = {key: state[key].reshape(array.shape) for key in _names(task, name) if key in state}
            moments = {key: np.empty(array.shape) for key in _names(task, name)}
            moved = np.empty_like(array, order="C")
            for rows in row_ranges(array):
                by = divisor if name not in contributors else _per_row(contributors[name][rows], array.ndim)
                part = change[rows] if by is None else change[rows] / by
                held = {key: moment[rows] for key, moment in before.items()}
                weights, arrays = _step(task, name, array[rows].astype(np.float64), part, held)
                moved[rows] = _finite(name, weights.astype(array.dtype))
                for key, moment in arrays.items():
                    moments[key][rows] = _finite(key, moment)
            after[name] = moved
            kept |= moments
    return after, kept


def weight_of(task: Task, update: Mapping[str, npt.NDArray[Any]]) -> float | None:
    """The sum of the clients' weights; None where the task has none.

    Raises:
        ExcessError: it is negative, and no client's weight may be.
        NoWeightError: servers add noise, and it is not far more than that.
    """
    if task.weights is None:
        return None
    weight = float(update[task.weights].reshape(-1)[0])
    if task.privacy is not None:
        return _certain_weight(task, weight)
    if weight < 0:
        raise ExcessError(
            f"the sum of the weights in block {task.weights!r} is negative, and no client's weight may be"
        )
    return weight


def _certain_weight(task: Task, weight: float) -> float:
    """A sum of weights with noise in it, where it is far more than the noise."""
    least = ldexp(CERTAIN * sqrt(2) * task.doses.values, -task.ring.fraction_bits)
    if weight < least:
        raise NoWeightError(
            f"the clients' weights in block {task.weights!r} sum to less than {CERTAIN} standard deviations of the "
            "servers' noise, so their mean says nothing; the model stays. More clients would do, or larger weights: "
            "they are a part of what the task's bound limits"
        )
    return weight


def own_step(
    task: Task, function: OwnRule, model: Arrays, update: Arrays, state: Arrays, number: int, clients: int
) -> tuple[Arrays, Arrays]:
    """The model and the state that a function of one's own makes of a sum.

    Raises:
        OwnRuleError: it raised something, or returned what is no model of the task, or left what is no state.
        ExcessError: the clients' weights sum to less than 0.
    """
    facts = RoundFacts(number, clients, weight_of(task, update), {name: array.copy() for name, array in state.items()})
    learned = {block.name: model[block.name] for block in task.model_blocks}
    try:
        made = function(_protected(learned), _protected({name: update[name] for name in learned}), facts)
        after, kept = _own_copies(made), _own_copies(facts.state)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever else it is, `sys.exit()` too: nothing of it may end the server
        raise OwnRuleError(f"{task.apply} raised {type(error).__name__}") from error
    _check_model(task, learned, after)
    _check_kept(task, kept)
    return model | {name: after[name] for name in learned}, {name: kept[name] for name in sorted(kept)}


def describe_state(state: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The digest of a state, in which names, dtypes, shapes and bytes are; empty where there is none."""
    if not state:
        return b""
    parts: list[bytes | memoryview] = []
    for name in sorted(state):
        array = np.ascontiguousarray(state[name])
        parts += [name.encode(), array.dtype.str[1:].encode(), repr(array.shape).encode()]
        parts.append(array.reshape(-1).view(np.uint8).data)
    return digest(Domain.STATE, *parts)


def check_state(task: Task, state: Mapping[str, npt.NDArray[Any]]) -> None:
    """Check that a state is one of this task's: empty, or with all arrays of its optimizer.

    Raises:
        MisuseError: it is another task's.
    """
    if task.rule == "own" or not state:
        _refuse_unnamed(state)
        return
    expected = {name: block.shape for block in task.model_blocks for name in _names(task, block.name)}
    if set(state) != set(expected):
        optimizer = type(task.optimizer).__name__ if task.optimizer else "no optimizer"
        raise MisuseError(
            f"the state has {sorted(state)}, and the task, with {optimizer}, keeps {sorted(expected)}; give the state "
            "of a checkpoint of this task, or none"
        )
    for name, shape in expected.items():
        array = state[name]
        if array.dtype != np.float64 or array.shape not in (shape, shape[:1] if shape[1:] == (1,) else shape):
            raise MisuseError(f"state {name!r}: float64 {shape} expected, got {array.dtype} {array.shape}")
        if not np.isfinite(array).all():
            raise MisuseError(f"state {name!r} holds a number that is not finite")
        if name.startswith("second/") and (array < 0).any():
            raise MisuseError(f"state {name!r} holds a number below 0, and it is a mean of squares")


def _divisor(task: Task, update: Arrays, clients: int) -> float | None:
    """What the sum is divided by; None where it is not.

    Where weights are proved, it is no less than one client's largest: else clients that together weigh next to nothing
    could move the model as far as they like. Source: McMahan, Ramage, Talwar, Zhang, Learning differentially private
    recurrent language models, ICLR 2018, the estimator f̃_c.
    """
    match task.rule:
        case "mean" | "row-mean":  # of rows that are counted, see `_per_row`
            return float(clients)
        case "weighted-mean":
            weight = weight_of(task, update)
            if not weight:
                raise NoWeightError(
                    f"the clients' weights in block {task.weights!r} sum to 0, so there is no mean; the model stays"
                )
            return max(weight, task.largest_weight or 0.0)
        case _:
            return None


def _per_row(counts: Counts, dimensions: int) -> Doubles:
    """What each row of a sum is divided by: its contributors; 1 where it has none, and was not opened."""
    return np.maximum(counts, 1).astype(np.float64).reshape(-1, *[1] * (dimensions - 1))


def _step(
    task: Task, name: str, weights: Doubles, change: Doubles, state: Arrays
) -> tuple[Doubles, dict[str, Doubles]]:
    """A block after one step, and what the optimizer keeps of it."""
    match task.optimizer:
        case None:
            return weights + change, {}
        case Sgd(rate=rate):
            return weights + rate * change, {}
        case Momentum(rate=rate, momentum=momentum):
            velocity = _kept(state, f"velocity/{name}", weights, 0.0)
            velocity = momentum * velocity + change
            return weights + rate * velocity, {f"velocity/{name}": velocity}
        case Adam(rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon):
            first = _kept(state, f"first/{name}", weights, 0.0)
            second = _kept(state, f"second/{name}", weights, epsilon * epsilon)
            first = beta1 * first + (1 - beta1) * change
            second = beta2 * second + (1 - beta2) * (change * change)
            moved = weights + (rate * first) / (np.sqrt(second) + epsilon)
            return moved, {f"first/{name}": first, f"second/{name}": second}


def _names(task: Task, name: str) -> list[str]:
    """Under which names the optimizer keeps what it keeps of a block."""
    return [f"{moment}/{name}" for moment in _moments(task.optimizer)]


def _moments(optimizer: Optimizer | None) -> tuple[str, ...]:
    match optimizer:
        case Momentum():
            return ("velocity",)
        case Adam():
            return "first", "second"
        case _:
            return ()


def _kept(state: Arrays, name: str, like: Doubles, fresh: float) -> Doubles:
    return state[name] if name in state else np.full_like(like, fresh)


def _finite(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not np.isfinite(array).all():
        raise BeyondDtypeError(f"the sum would take {name!r} beyond what {array.dtype} can hold")
    return array


def _protected(arrays: Mapping[str, npt.NDArray[Any]]) -> Arrays:
    """Views through which a function cannot change what it is shown."""
    views = {name: array.view() for name, array in arrays.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def _own_copies(made: Any) -> Any:
    """What a function has made, with arrays that it does not hold as well; what is no dictionary of arrays stays."""
    if not isinstance(made, Mapping):
        return made
    return {name: np.array(made[name], order="C") if type(made[name]) is np.ndarray else made[name] for name in made}


def _check_model(task: Task, learned: Arrays, made: Any) -> None:
    if not isinstance(made, dict) or set(made) != set(learned):
        got = f"blocks {sorted(map(str, made))}" if isinstance(made, dict) else type(made).__name__
        raise OwnRuleError(f"{task.apply} returned {got}, not a dictionary of the blocks {sorted(learned)}")
    for name, before in learned.items():
        after = made[name]
        if type(after) is not np.ndarray or (after.dtype, after.shape) != (before.dtype, before.shape):
            got = f"{after.dtype} {after.shape}" if type(after) is np.ndarray else type(after).__name__
            raise OwnRuleError(f"{task.apply} returned block {name!r} as {got}, not {before.dtype} {before.shape}")
        if after.dtype.kind == "f" and not np.isfinite(after).all():
            raise OwnRuleError(f"{task.apply} returned block {name!r} with numbers that are not finite")


def _check_kept(task: Task, state: Any) -> None:
    try:
        _refuse_unnamed(state)
    except MisuseError as error:
        raise OwnRuleError(f"{task.apply} left no state that can be stored: {error}") from error


def _refuse_unnamed(state: Mapping[str, npt.NDArray[Any]]) -> None:
    if len(state) > MOST_ARRAYS:
        raise MisuseError(f"a state of at most {MOST_ARRAYS} arrays expected, got {len(state)}")
    for name, array in state.items():
        if not (isinstance(name, str) and 1 <= len(name) <= 128 and name.isprintable()):
            raise MisuseError("the name of each array in a state is 1 to 128 printable characters")
        if type(array) is not np.ndarray or array.dtype.str[1:] not in MODEL_DTYPES or array.dtype.byteorder == ">":
            got = array.dtype if type(array) is np.ndarray else type(array).__name__
            raise MisuseError(f"state {name!r} is an array of one of {MODEL_DTYPES}, not {got}")
