import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsl_async.bounds.client import TRIALS, four_squares
from fsl_async.bounds.field import FIELD_255, FIELD_321, Field, field_of, invert_all, lagrange
from fsl_async.bounds.sum_of_squares import gram
from fsl_async.randomness import SeededSource
from tests.support.reference_bounds import interpolate

each_field = pytest.mark.parametrize("field", [FIELD_255, FIELD_321])


def is_prime(number: int) -> bool:
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in random.Random(3).sample(range(2, 2**60), 40):
        powers = [pow(base, odd << i, number) for i in range(twos)]
        if powers[0] != 1 and number - 1 not in powers:
            return False
    return True


@each_field
def test_the_prime_is_one(field: Field):
    assert is_prime(field.prime)
    assert not is_prime(field.prime - 2)


def test_the_field_of_each_ring():
    assert [field_of(bits) for bits in (32, 64, 128)] == [FIELD_255, FIELD_255, FIELD_321]
    assert [(field.element_bytes, field.drawn_bytes) for field in (FIELD_255, FIELD_321)] == [(32, 48), (41, 64)]


@each_field
def test_elements_have_one_encoding(field: Field):
    elements = [0, 1, field.prime - 1]
    assert field.unpack(field.pack(elements)) == elements
    for number in (field.prime, field.prime + 1, 2 ** (8 * field.element_bytes) - 1):
        with pytest.raises(ValueError, match="element 1 of 2 is not below the prime"):
            field.unpack(bytes(field.element_bytes) + number.to_bytes(field.element_bytes, "little"))
    with pytest.raises(ValueError, match="no whole number of elements"):
        field.unpack(bytes(field.element_bytes + 1))


@each_field
def test_lagrange_coefficients_interpolate(field: Field):
    rng = random.Random(1)
    values = [rng.randrange(field.prime) for _ in range(6)]
    point = rng.randrange(10, field.prime)
    combined = sum(c * v for c, v in zip(lagrange(field, 5, point), values, strict=True)) % field.prime
    assert combined == interpolate(dict(enumerate(values)), point, field.prime)
    assert [x * y % field.prime for x, y in zip(values, invert_all(field, values), strict=True)] == [1] * 6


def test_every_small_number_is_four_squares():
    source = SeededSource(1)
    for number in range(10_001):
        assert sum(root * root for root in four_squares(number, source)) == number


@pytest.mark.parametrize(
    "number",
    [2**120, 2**120 - 1, 7 * 4**50, 15 * 4**20, 2**61 - 1, (2**61 - 1) ** 2, 3 * 2**119, 2**200 + 2, 4**40 * 3_001],
)
def test_large_numbers_are_four_squares(number: int):
    roots = four_squares(number, SeededSource(2))
    assert all(root >= 0 for root in roots)
    assert sum(root * root for root in roots) == number


@given(st.integers(0, 2**180))
@settings(max_examples=150, deadline=None)
def test_any_number_is_four_squares(number: int):
    assert sum(root * root for root in four_squares(number, SeededSource(number % 97))) == number


def test_broken_randomness_does_not_keep_the_search_for_ever():
    """Each candidate is drawn from a stream, so a source that repeats itself gives new ones all the same."""
    for number in range(10**12, 10**12 + 50):
        assert sum(root * root for root in four_squares(number, bytes)) == number
    assert TRIALS < 10**6


@given(st.integers(1, 90), st.integers(1, 5), st.integers(1, 6), st.integers(0, 10**6))
@settings(max_examples=80, deadline=None)
def test_inner_products_are_exact_whatever_the_size(bits: int, rows: int, columns: int, seed: int):
    rng = random.Random(seed)
    numbers = [[rng.randrange(-(2**bits), 2**bits + 1) for _ in range(columns)] for _ in range(rows)]
    numbers[0][0] = rng.choice([2**bits, -(2**bits), 2**23, -(2**23)])
    assert gram(numbers) == [[sum(a * b for a, b in zip(x, y, strict=True)) for y in numbers] for x in numbers]


def test_inner_products_are_exact_where_64_bits_end():
    root = 3_037_000_499
    assert root**2 < 2**63 < (root + 1) ** 2
    for number in (root - 1, root, root + 1, 2**23, -(2**23), 2**47):
        assert gram([[number, 1], [-1, number]]) == [[number**2 + 1, 0], [0, number**2 + 1]]
    assert gram([[0, 0]]) == [[0]]
