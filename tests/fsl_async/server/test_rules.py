"""Averages and optimizers, bit for bit against Python's own floats; what a function of one's own may do."""

import math
import random
import struct
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fsl_async import Adam, Dense, MisuseError, Momentum, Ring, RoundFacts, Sgd, Sparse, Task
from fsl_async.model_numbers import BeyondDtypeError, check_numbers
from fsl_async.server.rules import NoWeightError, OwnRuleError, average_and_step, check_state, describe_state, own_step
from fsl_async.server.sum_limits import ExcessError
from tests.support.cases import in_turn

BLOCKS = (Sparse("items", rows=20, select=3, width=3), Dense("head", size=5))
WEIGHTED = (*BLOCKS, Dense("examples", size=1))
RING = Ring(64, fraction_bits=24)
OPTIMIZERS = [None, Sgd(0.3), Momentum(0.7, momentum=0.9), Adam(0.05), Adam(1.0, beta1=0.0, beta2=0.5, epsilon=1e-8)]


def task(**changes: Any) -> Task:
    return Task(**({"name": "t", "blocks": BLOCKS, "ring": RING, "apply": "mean"} | changes))


def model(dtype: str = "f8", seed: int = 1) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    return {"items": rng.normal(size=(20, 3)).astype(dtype), "head": rng.normal(size=5).astype(dtype)}


def update(rng: random.Random) -> dict[str, npt.NDArray[Any]]:
    """A sum with zeros, with tiny numbers and with huge ones."""

    def number() -> float:
        return rng.choice((0.0, rng.gauss(0, 1), rng.gauss(0, 1) * 2**-24, rng.gauss(0, 1) * 2.0**30))

    return {
        "items": np.array([[number() for _ in range(3)] for _ in range(20)]),
        "head": np.array([number() for _ in range(5)]),
        "examples": np.array([rng.randint(1, 500) / 8]),
    }


class Oracle:
    """One weight, with Python's floats and `math.sqrt` alone, as docs/server-rules.md writes the rules."""

    def __init__(self, weight: float, optimizer: Any, dtype: str) -> None:
        self.weight, self.optimizer, self.dtype = weight, optimizer, dtype
        self.velocity = self.first = 0.0
        self.second = optimizer.epsilon * optimizer.epsilon if isinstance(optimizer, Adam) else 0.0

    def step(self, change: float, divisor: float | None) -> None:
        delta = change if divisor is None else change / divisor
        match self.optimizer:
            case None:
                moved = self.weight + delta
            case Sgd(rate=rate):
                moved = self.weight + rate * delta
            case Momentum(rate=rate, momentum=momentum):
                self.velocity = momentum * self.velocity + delta
                moved = self.weight + rate * self.velocity
            case Adam(rate=rate, beta1=beta1, beta2=beta2, epsilon=epsilon):
                self.first = beta1 * self.first + (1 - beta1) * delta
                self.second = beta2 * self.second + (1 - beta2) * (delta * delta)
                moved = self.weight + (rate * self.first) / (math.sqrt(self.second) + epsilon)
        code = {"f2": "<e", "f4": "<f", "f8": "<d"}[self.dtype]
        self.weight = struct.unpack(code, struct.pack(code, moved))[0]


@in_turn("dtype", ["f4", "f8"])
@in_turn("apply", ["sum", "mean", "weighted-mean", "row-mean"])
@in_turn("optimizer", OPTIMIZERS)
def test_every_bit_is_what_python_s_floats_give(apply: str, optimizer: Any, dtype: str) -> None:
    if apply == "sum" and optimizer is None:
        return  # a sum is added as ever
    weighted = apply == "weighted-mean"
    made = task(
        apply=apply,
        optimizer=optimizer,
        blocks=WEIGHTED if weighted else BLOCKS,
        weights="examples" if weighted else None,
    )
    now, state, rng = model(dtype), {}, random.Random(f"{apply} {optimizer} {dtype}")
    oracles = {name: [Oracle(float(x), optimizer, dtype) for x in array.flat] for name, array in now.items()}
    for clients in (2, 3, 7, 2, 1000):
        summed = update(rng)
        mean = {"sum": None, "weighted-mean": float(summed["examples"][0])}.get(apply, float(clients))
        counts = np.array([rng.randint(0, clients) for _ in range(20)], dtype=np.int32)
        counted = {"items": counts} if apply == "row-mean" else {}
        now, state = average_and_step(made, now, summed, state, clients, counted)
        for name, weights in oracles.items():
            for place, (oracle, change) in enumerate(zip(weights, summed[name].flat, strict=True)):
                oracle.step(float(change), float(max(counts[place // 3], 1)) if name in counted else mean)
            expected = np.array([oracle.weight for oracle in weights], dtype=dtype)
            assert now[name].tobytes() == expected.tobytes(), f"{name} after {clients} clients"
            assert now[name].dtype == np.dtype(dtype)
    if isinstance(optimizer, Adam):
        for name, weights in oracles.items():
            assert state[f"first/{name}"].tobytes() == np.array([oracle.first for oracle in weights]).tobytes()
            assert state[f"second/{name}"].tobytes() == np.array([oracle.second for oracle in weights]).tobytes()
    check_state(made, state)


def test_nothing_that_was_given_is_changed() -> None:
    made, before, summed = task(optimizer=Adam(1.0)), model(), update(random.Random(1))
    _, state = average_and_step(made, before, summed, {}, 2)
    kept = describe_state(state)
    average_and_step(made, before, summed, state, 2)
    assert describe_state(state) == kept
    assert all(np.array_equal(before[name], array) for name, array in model().items())


def test_a_row_that_nobody_ever_touched_stays_bit_for_bit_and_one_with_momentum_moves() -> None:
    made, state = task(optimizer=Adam(0.1)), {}
    now = before = model("f4")
    touched = {"items": np.zeros((20, 3)), "head": np.zeros(5)}
    touched["items"][4] = 1.0
    for changes in (touched, {name: np.zeros_like(array) for name, array in touched.items()}):
        moved, state = average_and_step(made, now, changes, state, 2)
        assert (moved["items"][4] != now["items"][4]).all()
        now = moved
    others = np.arange(20) != 4
    assert now["items"][others].tobytes() == before["items"][others].tobytes()


# ---- what is refused


def weighted(weight: float) -> tuple[Task, dict[str, npt.NDArray[Any]]]:
    made = task(apply="weighted-mean", weights="examples", blocks=WEIGHTED)
    return made, update(random.Random(2)) | {"examples": np.array([weight])}


def test_without_any_weight_there_is_no_mean() -> None:
    made, summed = weighted(0.0)
    with pytest.raises(NoWeightError, match="'examples' sum to 0, so there is no mean; the model stays"):
        average_and_step(made, model(), summed, {}, 2)


def test_where_weights_are_proved_the_mean_divides_by_no_less_than_one_clients_largest() -> None:
    _, summed = weighted(2.0**-20)
    fields = {"blocks": WEIGHTED, "ring": Ring(64, fraction_bits=20), "bound": 1.0, "largest_weight": 0.25}
    made = task(apply="weighted-mean", weights="examples", **fields)
    before = model()
    for weight, divisor in ((2.0**-20, 0.25), (0.25, 0.25), (0.75, 0.75)):
        after, _ = average_and_step(made, before, summed | {"examples": np.array([weight])}, {}, 2)
        assert after["head"].tobytes() == (before["head"] + summed["head"] / divisor).tobytes()


def test_a_negative_sum_of_weights_shows_that_somebody_lied() -> None:
    made, summed = weighted(-1.0)
    with pytest.raises(ExcessError, match="'examples' is negative, and no client's weight may be"):
        average_and_step(made, model(), summed, {}, 2)


@pytest.mark.parametrize(("dtype", "rate"), [("f2", 1e5), ("f4", 1e9)])
def test_what_a_dtype_cannot_hold_is_refused(dtype: str, rate: float) -> None:
    summed = {"items": np.full((20, 3), 2.0**100), "head": np.zeros(5)}
    with pytest.raises(BeyondDtypeError, match=r"'items' beyond what float(16|32) can hold"):
        average_and_step(task(optimizer=Sgd(rate)), model(dtype), summed, {}, 2)


def test_a_state_beyond_doubles_is_refused() -> None:
    summed = {"items": np.full((20, 3), 1e200), "head": np.zeros(5)}
    with pytest.raises(BeyondDtypeError, match="'second/items' beyond what float64 can hold"):
        average_and_step(task(optimizer=Adam(1e-200)), model(), summed, {}, 2)


def test_blocks_of_integers_have_no_averages() -> None:
    whole = model() | {"head": np.zeros(5, dtype=np.int32)}
    with pytest.raises(MisuseError, match=r"'head' is of int32, and apply = \"mean\" gives fractions"):
        check_numbers(task(), whole)
    with pytest.raises(MisuseError, match="'head' is of int32, and Adam gives fractions"):
        check_numbers(task(apply="sum", optimizer=Adam(1.0)), whole)
    check_numbers(task(apply="sum"), whole)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"velocity/items": np.zeros((20, 3))}, "the state has .'velocity/items'., and the task, with Adam, keeps"),
        ({name: np.zeros(1) for name in ("first/items", "second/items", "first/head", "second/head")}, r"\(20, 3\)"),
    ],
)
def test_the_state_of_another_task_is_refused(state: dict[str, npt.NDArray[Any]], words: str) -> None:
    with pytest.raises(MisuseError, match=words):
        check_state(task(optimizer=Adam(1.0)), state)


def test_a_mean_of_squares_below_0_is_refused() -> None:
    made = task(optimizer=Adam(1.0))
    _, state = average_and_step(made, model(), update(random.Random(1)), {}, 2)
    state["second/head"][0] = -1e-9
    with pytest.raises(MisuseError, match="'second/head' holds a number below 0"):
        check_state(made, state)


def test_a_state_with_infinity_is_refused() -> None:
    made = task(optimizer=Momentum(1.0))
    _, state = average_and_step(made, model(), update(random.Random(1)), {}, 2)
    state["velocity/head"][0] = np.inf
    with pytest.raises(MisuseError, match="'velocity/head' holds a number that is not finite"):
        check_state(made, state)


# ---- the digest of a state


def test_a_digest_has_names_types_shapes_and_bytes() -> None:
    array = np.arange(4.0)
    states = [
        {"a": array},
        {"b": array},
        {"a": array.reshape(2, 2)},
        {"a": array.astype("f4")},
        {"a": array + 1},
        {"a": array, "b": array},
        {"a": -array},
    ]
    assert len({describe_state(state) for state in states}) == len(states)
    assert describe_state({}) == b""
    assert describe_state({"b": array, "a": array}) == describe_state({"a": array, "b": array})


# ---- a function of one's own


def halved(model: Any, update: Any, facts: RoundFacts) -> Any:
    facts.state["rounds"] = facts.state.get("rounds", np.zeros(1, dtype=np.int64)) + 1
    return {name: array + update[name] / 2 for name, array in model.items()}


def apply_own(function: Any, state: Any = None, **changes: Any) -> Any:
    made = task(**({"apply": halved} | changes))
    return own_step(made, function, model(), update(random.Random(3)), state or {}, 5, 2)


def test_a_function_makes_the_model_and_keeps_a_state() -> None:
    after, state = apply_own(halved)
    assert np.array_equal(after["items"], model()["items"] + update(random.Random(3))["items"] / 2)
    _, again = apply_own(halved, state)
    assert (state["rounds"].tolist(), again["rounds"].tolist()) == ([1], [2])


def test_a_function_is_told_the_round_and_the_weight() -> None:
    told: list[RoundFacts] = []

    def note(model: Any, update: Any, facts: RoundFacts) -> Any:
        told.append(facts)
        assert set(update) == set(model) == {"items", "head"}
        return dict(model)

    apply_own(note)
    apply_own(note, blocks=WEIGHTED, weights="examples")
    weight = float(update(random.Random(3))["examples"][0])
    assert [(facts.number, facts.clients, facts.weight) for facts in told] == [(5, 2, None), (5, 2, weight)]


def _fails(*_: Any) -> Any:
    raise RuntimeError("the sum is 12.5")


def _in_place(model: Any, *_: Any) -> Any:
    model["items"] += 1
    return model


class _Panic(BaseException):
    """As libraries have that raise what is no `Exception`."""


class _Lazy(dict):  # type: ignore[type-arg]
    def __getitem__(self, name: Any) -> Any:
        raise KeyError(name)


def _panics(*_: Any) -> Any:
    raise _Panic


def _masked(model: Any, *_: Any) -> Any:
    return model | {"head": np.ma.masked_invalid(np.array([1.0, np.nan, 2.0, 3.0, 4.0]))}


OWN = {
    "ends the process": (lambda *_: sys.exit(3), "raised SystemExit$"),
    "panics": (_panics, "raised _Panic$"),
    "a dictionary that fails": (lambda model, *_: _Lazy(model), "raised KeyError$"),
    "a masked array": (_masked, "'head' as MaskedArray, not float64"),
    "a masked array in its state": (
        lambda model, _, facts: facts.state.update(a=np.ma.masked_invalid([np.nan])) or dict(model),
        "left no state that can be stored: state 'a' is an array of one of .* not MaskedArray",
    ),
    "raises": (_fails, "test_rules:halved raised RuntimeError$"),
    "changes what it is shown": (_in_place, "raised ValueError$"),
    "returns nothing": (lambda *_: None, "returned NoneType, not a dictionary of the blocks"),
    "leaves a block out": (lambda model, *_: {"items": model["items"]}, r"returned blocks \['items'\], not"),
    "another shape": (lambda model, *_: model | {"head": np.zeros(4)}, r"'head' as float64 \(4,\), not float64 \(5,\)"),
    "another type": (lambda model, *_: model | {"head": np.zeros(5, "f4")}, r"'head' as float32 \(5,\), not float64"),
    "a list": (lambda model, *_: model | {"head": [0.0] * 5}, "'head' as list, not float64"),
    "infinity": (lambda model, *_: model | {"head": np.full(5, np.inf)}, "'head' with numbers that are not finite"),
    "objects in its state": (
        lambda model, _, facts: facts.state.update(a=np.array([None])) or dict(model),
        "left no state that can be stored: state 'a' is an array of one of",
    ),
    "no name in its state": (
        lambda model, _, facts: facts.state.update({"\n": np.zeros(1)}) or dict(model),
        "left no state that can be stored: the name of each array",
    ),
}


@in_turn("function, words", OWN.values())
def test_what_a_function_may_not_do_refuses_the_sum(function: Any, words: str) -> None:
    with pytest.raises(OwnRuleError, match=words) as refused:
        apply_own(function)
    assert "12.5" not in str(refused.value), "clients are told the message, and no value of the sum"


def test_whoever_ends_the_process_from_the_keyboard_does() -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_own(interrupted)


def test_what_a_function_keeps_for_itself_does_not_change_the_model_later() -> None:
    held: dict[str, npt.NDArray[Any]] = {}

    def keeps(model: Any, update: Any, facts: RoundFacts) -> Any:
        held.update({name: array.copy() for name, array in model.items()})
        return held

    after, _ = apply_own(keeps)
    held["items"] += 1
    assert np.array_equal(after["items"], model()["items"])
