"""What a task can learn of a model, and what clients may submit to it."""

from __future__ import annotations

import numpy as np
import pytest
import trio

from fsl_async import Dense, MisuseError, Ring, RingIntegers, Sparse, Task
from fsl_async.applying import check_numbers, narrow_blocks
from parties import simulate


def task(ring: Ring, **fields: object) -> Task:
    return Task(name="t", blocks=[Dense("a", size=3)], ring=ring, min_clients=2, max_clients=4, **fields)  # type: ignore[arg-type]


# ---- which models


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_a_model_of_floats_needs_fraction_bits(ring: Ring, dtype: str) -> None:
    model = {"a": np.zeros(3, dtype)}
    with pytest.raises(
        MisuseError, match=rf"block 'a' is of float\d\d, .* no fraction bits.*Ring\({ring.bits}, fracti"
    ):
        check_numbers(task(ring), model)
    check_numbers(task(Ring(ring.bits, 8)), model)
    check_numbers(task(ring), {"a": np.zeros(3, "i8")})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_has_finite_numbers(value: float) -> None:
    with pytest.raises(MisuseError, match=rf"block 'a': {value} at \[1\] is not a finite number.*; 2 such weights"):
        check_numbers(task(Ring(64, 8)), {"a": np.array([0, value, value], dtype="f4")})


async def test_a_simulation_refuses_such_models_before_it_starts() -> None:
    for ring, model, words in (
        (Ring(64), np.zeros(3), "no fraction bits"),
        (Ring(64, 24), np.array([0, np.nan, 0]), "not a finite number"),
    ):
        with pytest.raises(MisuseError, match=words):
            async with simulate(task(ring), {"a": model}, seed=1):
                pass


def test_narrow_blocks_are_those_that_one_client_could_overflow() -> None:
    model = {"a": np.zeros(3, "f2"), "b": np.zeros(3, "i1"), "c": np.zeros(3, "f4"), "d": np.zeros(3, "i8")}
    assert narrow_blocks(task(Ring(64, 24)), model) == {"a": 65504.0, "b": 127.0}
    assert narrow_blocks(task(Ring(64, 24), largest=127), model) == {}


# ---- what clients submit


async def test_blocks_of_integers_take_whole_numbers_alone() -> None:
    blocks = [Sparse("counts", rows=9, select=2), Dense("head", size=2)]
    made = Task(name="t", blocks=blocks, ring=Ring(64, fraction_bits=8), min_clients=2, max_clients=4)
    with trio.fail_after(60):
        async with simulate(made, {"counts": np.zeros((9, 1), "i2"), "head": np.zeros(2)}, seed=1) as net:
            async with net.client("a") as client:
                for values in ([[1.0], [0.5]], RingIntegers(np.array([[256], [128]]))):
                    with pytest.raises(
                        MisuseError, match=r"'counts': the servers hold it as int16.*; got 0\.5 at \[1, 0"
                    ):
                        await client.submit({"counts": ([1, 2], values)})
                await client.submit({"counts": ([1, 2], [[3], [4]]), "head": [0.5, 1.0]})
            async with net.client("b") as client:
                await client.submit({"counts": ([1, 3], [[1.0], [-4.0]]), "head": np.array([1, 2])})
            outcome = await net.finish_round()
            assert outcome.update["counts"][:4, 0].tolist() == [0.0, 4.0, 4.0, -4.0]
            assert outcome.elements["head"].tolist() == [3 * 128, 3 * 256]
            assert net.model["counts"][:4, 0].tolist() == [0, 4, 4, -4]
            assert net.model["head"].tolist() == [1.5, 3.0]


async def test_a_ring_of_integers_sums_integers_exactly_and_refuses_floats() -> None:
    made = task(Ring(64))
    many = 2**60 + 1
    with trio.fail_after(60):
        async with simulate(made, {"a": np.zeros(3, "i8")}, seed=1) as net:
            for name in ("a", "b"):
                async with net.client(name) as client:
                    with pytest.raises(MisuseError, match="block 'a': floats need a ring with fraction bits"):
                        await client.submit({"a": [0.25, 0.25, 0.25]})
                    await client.submit({"a": [1, -2, many]})
            outcome = await net.finish_round()
            assert outcome.update["a"].tolist() == [2, -4, 2 * many]
            assert net.model["a"].tolist() == [2, -4, 2 * many]
