"""Ring elements against Python's integers and fractions."""

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsl_async import MisuseError, Ring, RingIntegers, Task
from fsl_async.ring import float_below
from fsl_async.task import Dense
from tests.support.cases import in_turn

BITS = (32, 64, 128)
rings = st.sampled_from(BITS).flatmap(lambda bits: st.builds(Ring, st.just(bits), st.integers(0, bits - 2)))
fixed_points = rings.filter(lambda ring: ring.fraction_bits > 0)


def signed(ring: Ring, value: int) -> int:
    """The representative of a residue class in [-2^(l-1), 2^(l-1))."""
    half = 2 ** (ring.bits - 1)
    return (value + half) % 2**ring.bits - half


def largest(ring: Ring) -> int:
    return 2 ** (ring.bits - 1) - 1


def elements_of(ring: Ring, values: list[int]) -> np.ndarray:
    data = b"".join((value % 2**ring.bits).to_bytes(ring.element_bytes, "little") for value in values)
    return ring.from_bytes(data, len(values))


def integers_of(ring: Ring, elements: np.ndarray) -> list[int]:
    return [int(value) for value in ring.to_integers(elements)]


@st.composite
def ring_and_pairs(draw: st.DrawFn) -> tuple[Ring, list[int], list[int]]:
    ring = Ring(draw(st.sampled_from(BITS)))
    edges = [0, 1, -1, largest(ring), -largest(ring) - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, -(2**64), 2**64]
    value = st.one_of(st.integers(-(2**127), 2**127 - 1), st.sampled_from(edges)).map(lambda v: signed(ring, v))
    pairs = draw(st.lists(st.tuples(value, value), min_size=1, max_size=8))
    return ring, [left for left, _ in pairs], [right for _, right in pairs]


# ---- parameters


@pytest.mark.parametrize("bits", [0, 16, 63, 256, -64, 64.0, "64", True])
def test_refuses_other_rings(bits: object) -> None:
    with pytest.raises(MisuseError, match=f"bits must be 32, 64 or 128, not {bits!r}"):
        Ring(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("fraction_bits", [-1, 63, 64, 2.5, "3", None, True])
def test_refuses_fractions_that_leave_no_sign_and_no_integer(fraction_bits: object) -> None:
    with pytest.raises(MisuseError, match=f"fraction_bits must be from 0 to 62, not {fraction_bits!r}"):
        Ring(64, fraction_bits)  # type: ignore[arg-type]


def test_bytes_of_an_element(ring: Ring) -> None:
    assert ring.element_bytes * 8 == ring.bits


# ---- arithmetic


@given(ring_and_pairs())
def test_arithmetic_is_that_of_integers_modulo_2_to_l(case: tuple[Ring, list[int], list[int]]) -> None:
    ring, left, right = case
    a, b = elements_of(ring, left), elements_of(ring, right)
    assert integers_of(ring, a) == left
    assert integers_of(ring, ring.add(a, b)) == [signed(ring, x + y) for x, y in zip(left, right, strict=True)]
    assert integers_of(ring, ring.subtract(a, b)) == [signed(ring, x - y) for x, y in zip(left, right, strict=True)]
    assert integers_of(ring, ring.negate(a)) == [signed(ring, -x) for x in left]


@given(ring_and_pairs())
def test_arithmetic_leaves_its_arguments_alone(case: tuple[Ring, list[int], list[int]]) -> None:
    ring, left, right = case
    a, b = elements_of(ring, left).copy(), elements_of(ring, right).copy()
    ring.add(a, b)
    ring.subtract(a, b)
    ring.negate(b)
    assert integers_of(ring, a) == left
    assert integers_of(ring, b) == right


def test_arithmetic_keeps_the_shape(ring: Ring) -> None:
    values = ring.encode(np.arange(12).reshape(3, 4), 100)
    for result in (ring.add(values, values), ring.negate(values), ring.subtract(values, values)):
        assert result.shape == values.shape
        assert result.dtype == values.dtype
    assert ring.add(values, ring.negate(values)).tobytes() == bytes(12 * ring.element_bytes)


def test_max_clients_of_the_largest_values_do_not_wrap(ring: Ring) -> None:
    for clients in (2, 3, 16, 1000, 99_999):
        task = Task(name="t", blocks=(Dense("d", size=1),), ring=ring, min_clients=2, max_clients=clients)
        top = np.array([task.largest_integer, -task.largest_integer], dtype=object)
        assert clients * task.largest_integer <= largest(ring) < clients * (task.largest_integer + 1)
        encoded = ring.encode(top, task.largest_integer)
        if clients <= 1000:
            total = ring.zeros(2)
            for _ in range(clients):
                total = ring.add(total, encoded)
            assert integers_of(ring, total) == [clients * int(value) for value in top]


# ---- bytes


@given(ring_and_pairs())
def test_elements_are_little_endian_two_s_complement(case: tuple[Ring, list[int], list[int]]) -> None:
    ring, values, _ = case
    encoded = ring.encode(np.array(values, dtype=object), 2 ** (ring.bits - 1))
    expected = b"".join(value.to_bytes(ring.element_bytes, "little", signed=True) for value in values)
    assert encoded.tobytes() == expected
    assert ring.from_bytes(expected, len(values)).tobytes() == expected


def test_from_bytes_is_a_view_unless_it_must_be_writable(ring: Ring) -> None:
    data = bytearray(6 * ring.element_bytes)
    view = ring.from_bytes(data, 2, 3)
    copy = ring.from_bytes(data, 2, 3, writable=True)
    data[0] = 7
    assert integers_of(ring, view.reshape(-1, *view.shape[2:]))[0] == 7
    copy[...] = 1
    assert integers_of(ring, copy.reshape(-1, *copy.shape[2:]))[0] != 7
    assert not ring.from_bytes(bytes(data), 6).flags.writeable


@in_turn("shape", [(0,), (1,), (5, 0), (2, 3), ()])
def test_zeros(ring: Ring, shape: tuple[int, ...]) -> None:
    zeros = ring.zeros(*shape)
    assert zeros.shape == (*shape, *((2,) if ring.bits == 128 else ()))
    assert not zeros.any()
    assert zeros.flags.writeable


# ---- fixed point


@given(fixed_points, st.lists(st.integers(-(2**53), 2**53), min_size=1, max_size=8))
def test_decode_inverts_encode_where_a_float_holds_the_number(ring: Ring, integers: list[int]) -> None:
    integers = [signed(ring, value) // (2**21 if ring.bits == 32 else 1) for value in integers]
    floats = np.ldexp(np.array(integers, dtype=np.float64), -ring.fraction_bits)
    encoded = ring.encode(floats, largest(ring))
    assert integers_of(ring, encoded) == integers
    assert ring.decode(encoded).tolist() == floats.tolist()


@given(fixed_points, st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=8))
def test_encode_rounds_to_nearest_even_or_refuses(ring: Ring, values: list[float]) -> None:
    exact = [round(Fraction(value) * 2**ring.fraction_bits) for value in values]  # Python rounds half to even, too
    if all(abs(value) <= largest(ring) for value in exact):
        assert integers_of(ring, ring.encode(values, largest(ring))) == exact
    else:
        first = next(value for value, integer in zip(values, exact, strict=True) if abs(integer) > largest(ring))
        with pytest.raises(MisuseError) as refusal:
            ring.encode(values, largest(ring), "delta")
        assert str(refusal.value).startswith(f"delta: {np.float64(first)} at [{values.index(first)}] does not fit")


def test_ties_go_to_even(ring: Ring) -> None:
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 3.4999, -3.5001]) / 2
    assert integers_of(ring, Ring(ring.bits, 1).encode(halves, 100)) == [0, 2, 2, 0, -2, -2, 3, -4]


@given(ring_and_pairs(), st.integers(0, 30))
def test_decode_gives_the_nearest_float_or_the_integer_itself(
    case: tuple[Ring, list[int], list[int]], fraction: int
) -> None:
    bare, values, _ = case
    ring = Ring(bare.bits, fraction)
    for value, decoded in zip(values, ring.decode(elements_of(ring, values)), strict=True):
        # Python's division of integers rounds correctly.
        assert decoded == (value / 2**fraction if fraction else value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_of_every_width(ring: Ring, dtype: type) -> None:
    fixed = Ring(ring.bits, 8)
    values = np.array([[1.5, -2.25], [0.0, 100.0]], dtype=dtype)
    assert fixed.decode(fixed.encode(values, 2**20)).tolist() == values.tolist()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_refused_with_its_place(ring: Ring, value: float) -> None:
    with pytest.raises(MisuseError, match=rf"^weights: {value} at \[1, 0\] is not a finite number$"):
        Ring(ring.bits, 8).encode([[1.0, 2.0], [value, 3.0]], 2**20, "weights")


def test_what_does_not_fit_is_refused_with_the_largest_that_fits() -> None:
    with pytest.raises(MisuseError) as refusal:
        Ring(32, fraction_bits=8).encode([[0.0, -4.00390625]], 1024, "block 'items'")
    assert str(refusal.value) == (
        "block 'items': -4.00390625 at [0, 1] does not fit; the largest is 4.0 "
        "(32 bits, 8 of them behind the point, shared by all clients' sum)"
    )


@in_turn("clients", [2, 3, 7, 10, 1000, 99_999])
@in_turn("fraction_bits", [1, 16, 24, 30])
def test_the_largest_value_fits_and_the_next_float_does_not(bits: int, fraction_bits: int, clients: int) -> None:
    ring = Ring(bits, fraction_bits)
    task = Task(name="t", blocks=(Dense("d", size=1),), ring=ring, min_clients=2, max_clients=clients)
    top = task.largest_value
    (encoded,) = integers_of(ring, ring.encode([top], task.largest_integer))
    assert encoded <= task.largest_integer
    beyond = max(np.nextafter(top, np.inf), top + 2.0**-fraction_bits)
    with pytest.raises(MisuseError, match=r"does not fit; the largest is") as refusal:
        ring.encode([beyond], task.largest_integer)
    named = float(str(refusal.value).split("the largest is ")[1].split(" (")[0])
    assert named == top


def test_values_beyond_every_float_of_the_ring_are_refused_without_a_warning() -> None:
    with pytest.raises(MisuseError, match=r"1e\+300 at \[0\] does not fit"):
        Ring(128, fraction_bits=126).encode([1e300], 1)


@given(st.integers(1, 2**127))
def test_float_below(integer: int) -> None:
    below = float_below(integer)
    assert int(below) <= integer < int(np.nextafter(below, np.inf)) or float(integer) == integer == below


# ---- integers


@in_turn("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_integers_of_every_dtype_are_ring_integers(ring: Ring, dtype: str) -> None:
    info = np.iinfo(dtype)
    bound = largest(ring)
    values = [value for value in (0, 1, 17, int(info.min), int(info.max)) if abs(value) <= bound]
    assert integers_of(ring, ring.encode(np.array(values, dtype=dtype), bound)) == values


@in_turn("dtype", ["i1", "i8", "f2", "f8", object])
def test_a_value_means_its_value_whatever_its_dtype(bits: int, dtype: str) -> None:
    ring = Ring(bits, fraction_bits=12)
    assert ring.decode(ring.encode(np.array([3, -3, 0], dtype=dtype), 3 * 2**12)).tolist() == [3.0, -3.0, 0.0]
    with pytest.raises(MisuseError, match=r"^value: 3(\.0)? at \[0\] does not fit; the largest is 2(\.\d+)? "):
        ring.encode(np.array([3], dtype=dtype), 3 * 2**12 - 1)


@given(fixed_points, st.lists(st.integers(-(2**127), 2**127 - 1), min_size=1, max_size=8))
def test_integers_are_encoded_exactly_or_refused(ring: Ring, values: list[int]) -> None:
    values = [value % 2**70 for value in values] + values
    for value in values:
        for dtype in (object, *(["i8"] if -(2**63) <= value < 2**63 else [])):
            array = np.array([value], dtype=dtype)
            if abs(value) << ring.fraction_bits <= largest(ring):
                assert integers_of(ring, ring.encode(array, largest(ring))) == [value << ring.fraction_bits]
            else:
                with pytest.raises(MisuseError, match="does not fit"):
                    ring.encode(array, largest(ring))


def test_floats_are_refused_where_the_ring_has_no_fraction(ring: Ring) -> None:
    for values in ([0.25], np.ones(3, np.float16), [1, 2.0]):
        with pytest.raises(
            MisuseError, match=r"^head: floats need a ring with fraction bits, as Ring\(\d+, fraction_b"
        ):
            ring.encode(values, 100, "head")


def test_what_an_error_advises_works(ring: Ring) -> None:
    with pytest.raises(MisuseError) as refusal:
        ring.encode([0.25], 100)
    advised = Ring(ring.bits, int(re.search(r"fraction_bits=(\d+)", str(refusal.value))[1]))  # type: ignore[index]
    assert advised.decode(advised.encode([0.25], 2**100)).tolist() == [0.25]


def test_ring_integers_are_elements_as_they_stand(bits: int) -> None:
    ring = Ring(bits, fraction_bits=24)
    elements = ring.encode(RingIntegers(np.array([3, -3])), 3)
    assert integers_of(ring, elements) == [3, -3]
    assert ring.decode(elements).tolist() == [3 / 2**24, -3 / 2**24]
    assert ring.encode(RingIntegers(ring.to_integers(elements)), 3).tobytes() == elements.tobytes()
    assert ring.encode(RingIntegers([]), 3).size == 0  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match=r"^value: 4 at \[0\] does not fit; the largest is 3 "):
        ring.encode(RingIntegers(np.array([4])), 3)
    for wrong in ([0.5], [True], ["1"]):
        with pytest.raises(MisuseError, match="ring integers: an array of integers expected, got dtype"):
            RingIntegers(np.array(wrong))
    with pytest.raises(MisuseError, match="may hold Python integers only"):
        ring.encode(RingIntegers(np.array([0.5], dtype=object)), 3)


def test_a_sum_of_128_bits_is_rounded_once() -> None:
    ring = Ring(128, fraction_bits=1)
    values = [2**117 + 2**64 + 1, 2**64 * (2**54 - 1) + 1, 2**63, 2**64 - 1, -(2**127), 2**127 - 1, 2**53 + 1]
    for value in values:
        assert ring.decode(elements_of(ring, [value])).tolist() == [value / 2]


@in_turn(
    "values, named",
    [
        (np.array([0, 101]), "101 at [1]"),
        (np.array([-101, 0], dtype=np.int8), "-101 at [0]"),
        (np.array([2**64 - 1], dtype=np.uint64), f"{2**64 - 1} at [0]"),
        (np.array([2**100], dtype=object), f"{2**100} at [0]"),
        (np.array([-(2**200)], dtype=object), f"-{2**200} at [0]"),
    ],
)
def test_integers_that_do_not_fit_are_named(ring: Ring, values: np.ndarray, named: str) -> None:
    with pytest.raises(MisuseError) as refusal:
        ring.encode(values, 100, "count")
    assert str(refusal.value).startswith(f"count: {named} does not fit; the largest is 100 (")


@in_turn("values", [[True], ["1"], [b"1"], [1 + 2j], np.array(["2026-01-01"], dtype="M8[D]")])
def test_other_dtypes_are_refused(ring: Ring, values: object) -> None:
    with pytest.raises(MisuseError, match="expected floats or integers, got dtype"):
        ring.encode(values, 100)  # type: ignore[arg-type]


@in_turn("value", [0.5, None, "1", True, Fraction(1, 2)])
def test_objects_that_are_not_integers_are_refused(ring: Ring, value: object) -> None:
    with pytest.raises(MisuseError, match="may hold Python integers only"):
        ring.encode(np.array([1, value], dtype=object), 100)


def test_empty_values(ring: Ring) -> None:
    for empty in ([], np.zeros((0, 3)), np.zeros((0, 3), dtype=np.int8), np.zeros((0, 3), dtype=object)):
        assert ring.encode(empty, 100).size == 0
