"""Clipped updates: as long as the bound allows after rounding to the ring, and no longer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fsl_async import MisuseError, Ring
from fsl_async.learning import clipped
from tests.support.cases import in_turn

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
