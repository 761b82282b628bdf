"""What a task can learn of a model, sums added to it, against Python's integers, and what clients may submit."""

from fractions import Fraction

import numpy as np
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import Dense, MisuseError, Ring, RingIntegers, Sparse, Task
from fsl_async.model_numbers import BeyondDtypeError, applied, check_numbers, narrow_blocks
from parties import SumRefusedError, simulate
from tests.support.cases import one_in

INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")


def task(ring: Ring, **fields: object) -> Task:
    return Task(name="t", blocks=[Dense("a", size=3)], ring=ring, min_clients=2, max_clients=4, **fields)  # type: ignore[arg-type]


def sum_of(ring: Ring, integers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """A sum in both of its forms."""
    elements = ring.encode(RingIntegers(np.array(integers, dtype=object)), 2 ** (ring.bits - 1))
    return ring.decode(elements), ring.to_integers(elements)


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
    with pytest.raises(
        MisuseError, match=rf"block 'a': {value} at \[1\] is not a finite number.*; there are 2 such weights"
    ):
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


# ---- adding


@pytest.mark.parametrize(("bits", "fraction", "dtype"), one_in(3, (32, 64, 128), (0, 1, 20), INTEGERS))
@given(data=st.data())
def test_integers_take_the_exact_sum_or_none(bits: int, fraction: int, dtype: str, data: st.DataObject) -> None:
    ring, limits = Ring(bits, fraction), np.iinfo(dtype)
    edge = st.sampled_from([limits.min, limits.max, 0, limits.max // 2])
    held = data.draw(st.lists(edge | st.integers(int(limits.min), int(limits.max)), min_size=1, max_size=4))
    half = 2 ** (bits - 1)
    near = st.sampled_from([limits.max, -int(limits.max), 1, -1, limits.min]).map(lambda v: (int(v) << fraction) + 1)
    added = data.draw(
        st.lists(
            (near | st.integers(-half, half - 1)).map(lambda v: max(-half, min(half - 1, v))),
            min_size=len(held),
            max_size=len(held),
        )
    )
    expected = [value + round(Fraction(more, 2**fraction)) for value, more in zip(held, added, strict=True)]
    array = np.array(held, dtype=dtype)
    if all(limits.min <= value <= limits.max for value in expected):
        after = applied(ring, "a", array, *sum_of(ring, added))
        assert (after.dtype, after.tolist()) == (np.dtype(dtype), expected)
    else:
        with pytest.raises(BeyondDtypeError, match=f"block 'a' beyond what {np.dtype(dtype)} can hold"):
            applied(ring, "a", array, *sum_of(ring, added))


def test_floats_are_rounded_once_and_never_become_infinite() -> None:
    ring = Ring(64, 16)
    for dtype, held, more, after in (
        ("f2", 60_000, 5_000, 64_992.0),
        ("f2", 2048, 1, 2048.0),
        ("f4", 2**24, 1, float(2**24)),
        ("f8", 2**24, 1, float(2**24 + 1)),
    ):
        found = applied(ring, "a", np.array([held], dtype), *sum_of(ring, [more << 16]))
        assert (found.dtype, found.tolist()) == (np.dtype(dtype), [after])
    with pytest.raises(BeyondDtypeError, match="block 'a' beyond what float16 can hold"):
        applied(ring, "a", np.array([60_000], "f2"), *sum_of(ring, [10_000 << 16]))


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


# ---- a round whose sum the model cannot hold


@pytest.mark.parametrize(
    ("start", "ring", "value", "words"),
    [
        (np.full(3, 1_000, "f2"), Ring(64, 16), 40_000.5, "'a' beyond what float16 can hold"),
        (np.full(3, 100, "i1"), Ring(64), 20, "'a' beyond what int8 can hold"),
    ],
    ids=["float16", "int8"],
)
async def test_both_servers_refuse_a_sum_that_the_model_cannot_hold_and_go_on(start, ring, value, words) -> None:
    with trio.fail_after(60):
        async with simulate(task(ring), {"a": start}, seed=1) as net, net.client("a") as a, net.client("b") as b:
            for client in (a, b):
                await client.submit({"a": [value] * 3})
            with pytest.raises(SumRefusedError, match=words):
                await net.finish_round()
            for server in net.servers:
                assert server.model["a"].tolist() == start.tolist()
                assert await server.evidence.entries() == []  # nobody has lied
            for client in (a, b):
                with pytest.raises(SumRefusedError, match=words):
                    await client.outcome()
                await client.submit({"a": [1] * 3})
            await net.finish_round()
            assert [server.model["a"].tolist() for server in net.servers] == 2 * [(start.astype("f8") + 2).tolist()]
