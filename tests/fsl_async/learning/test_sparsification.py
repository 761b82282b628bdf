"""The rows and weights that are worth sending, and updates that are made as short as a bound allows."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fsl_async import MisuseError, Ring
from fsl_async.learning import clipped, top_rows, top_weights
from tests.support.cases import in_turn

few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.0])  # so that many are equal
tables = hnp.arrays(
    st.sampled_from([np.float64, np.float32, np.float16]), hnp.array_shapes(min_dims=1, max_dims=3), elements=few
)


def refused(words: str):
    return pytest.raises(MisuseError, match=re.escape(words))


@given(tables, st.data())
def test_rows_are_those_that_sorting_finds(values: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    order = sorted(range(len(values)), key=lambda row: (-float(np.abs(values[row]).sum(dtype=np.float64)), row))
    found = top_rows(values, k)
    assert found.tolist() == sorted(order[:k])
    assert found.dtype == np.int64


@given(tables, st.data())
def test_weights_are_those_that_sorting_finds(values: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, values.size))
    order = sorted(range(values.size), key=lambda place: (-abs(values.flat[place]), place))
    assert top_weights(values, k).tolist() == sorted(order[:k])


def test_a_row_counts_by_the_sum_of_its_absolute_values() -> None:
    values = np.array([[5.0, -5.0, 0.0], [4.0, 4.0, 1.0], [0.0, 9.5, 0.0]])
    assert top_rows(values, 1).tolist() == [0], "10 is more than 9 and 9.5"
    assert top_rows(values, 2).tolist() == [0, 2]


def test_the_smallest_integer_has_an_absolute_value_too() -> None:
    assert top_weights(np.array([127, -128], dtype=np.int8), 1).tolist() == [1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_named_with_its_index(bad: float) -> None:
    values = np.zeros((4, 3))
    values[2, 1] = bad
    with refused(f"tensor 'w': {bad} at [2, 1] is not a finite number"):
        top_rows(values, 1, "tensor 'w'")
    with refused(f"tensor 'w': {bad} at [2, 1] is not a finite number"):
        top_weights(values, 1, "tensor 'w'")


def test_what_cannot_be_ordered() -> None:
    with refused("values: k must be from 0 to 3, the number of rows, not 4"):
        top_rows(np.zeros((3, 2)), 4)
    with refused("values: k must be from 0 to 3, the number of rows, not 1.0"):
        top_rows(np.zeros((3, 2)), 1.0)  # type: ignore[arg-type]
    with refused("values: rows of numbers expected, got float64 of shape ()"):
        top_rows(np.float64(3), 1)
    with refused("values: rows of numbers expected, got complex128 of shape (2,)"):
        top_rows(np.zeros(2, complex), 1)
    with refused("values: the sum of row 1 is beyond what float64 holds"):
        top_rows(np.array([[1.0, 1.0], [1.7e308, 1.7e308]]), 1)


BITS = 16


def units(update: dict) -> int:
    """The square of the norm of what the ring makes of an update."""
    values = [part[1] if isinstance(part, tuple) else part for part in update.values()]
    ring = Ring(64, fraction_bits=BITS)
    rounded = [ring.to_integers(ring.encode(array, 2**60)).reshape(-1).tolist() for array in values]
    return sum(weight * weight for array in rounded for weight in array)


def update(size: float, seed: int, count: int = 200, kind: type = np.float64) -> dict:
    rng = np.random.default_rng(seed)
    return {
        "items": (np.arange(count), (size * rng.normal(size=(count, 4))).astype(kind)),
        "head": (size * rng.normal(size=7)).astype(kind),
    }


@in_turn("unit", [0.0, 2.0**-BITS])
@in_turn("kind", [np.float32, np.float64])
@in_turn("bound", [0.5, 1.0, 3.0])
def test_what_was_clipped_is_within_the_bound_after_rounding(bound: float, kind: type, unit: float) -> None:
    for seed in range(20):
        for size in (0.2, 1.0, 1e30):
            short = clipped(update(size, seed, kind=kind), bound, unit)
            assert units(short) <= math.floor(bound * 2**BITS) ** 2
            assert units(short) >= (bound * 0.998 * 2**BITS) ** 2


def test_shorter_updates_stay_as_they_are() -> None:
    small = update(0.001, 1)
    same = clipped(small, 1.0)
    assert same["items"] is small["items"]
    assert same["head"] is small["head"]
    assert clipped({"head": np.zeros(3)}, 1.0)["head"].tolist() == [0, 0, 0]
    assert clipped({}, 1.0) == {}


def test_whole_numbers_become_fractions_and_rows_stay() -> None:
    short = clipped({"items": ([3, 9], np.full((2, 2), 6)), "head": [1, 0]}, 6.0)
    assert short["items"][0] == [3, 9]
    np.testing.assert_allclose(short["items"][1], 6 * 6 / math.sqrt(145), rtol=0.002)


@pytest.mark.parametrize(
    ("bad", "bound", "says"),
    [
        ({"head": np.array([1.0, np.nan])}, 1.0, "block 'head': finite numbers"),
        ({"head": np.array([1.0, np.inf])}, 1.0, "block 'head': finite numbers"),
        ({"head": np.array(["a"])}, 1.0, "block 'head': finite numbers"),
        ({"head": np.ones(3)}, 0.0, "bound above what rounding takes"),
        ({"head": np.ones(3)}, math.inf, "bound above what rounding takes"),
        ({"head": np.ones(3)}, math.nan, "bound above what rounding takes"),
    ],
)
def test_what_cannot_be_clipped_is_refused(bad: dict, bound: float, says: str) -> None:
    with pytest.raises(MisuseError, match=says):
        clipped(bad, bound)
