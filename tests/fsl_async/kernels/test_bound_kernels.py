"""Combinations of words and projections of weights, in both lanes, against Python's integers."""

import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.errors import MisuseError
from tests.support import reference
from tests.support.cases import in_turn

pytestmark = pytest.mark.usefixtures("isa")

P_255, P_321 = 2**255 - 19, 2**321 - 9
KEY, NONCE = b"the matrix's key", 2**63 + 17
# Around every limb's boundary, and the ends of both fields.
COEFFICIENTS = [0, 1, *(2**bits + step for bits in (64, 128, 192) for step in (-1, 0, 1)), P_255 - 1, 2**255 - 1]
WIDE_COEFFICIENTS = [*COEFFICIENTS, 2**256 - 1, 2**256, 2**320 - 1, 2**320, P_321 - 1]
WORDS = [0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
WIDE_WORDS = [*WORDS, 2**64, 2**127 - 1, 2**127, 2**128 - 2**64, 2**128 - 1]


def elements(numbers: list[int], bits: int) -> np.ndarray:
    """Numbers as kernels take them: words, or pairs of words."""
    if bits == 64:
        return np.array(numbers, dtype=np.uint64)
    return np.array([[number % 2**64, number >> 64] for number in numbers], dtype=np.uint64).reshape(-1, 2)


def integers(words: np.ndarray) -> list[int]:
    """The inverse of `elements`."""
    return words.tolist() if words.ndim == 1 else [low | high << 64 for low, high in words.tolist()]


def numbers(rng: np.random.Generator, bits: int, count: int) -> list[int]:
    return [int.from_bytes(rng.bytes(bits // 8), "little") for _ in range(count)]


# Combinations


@pytest.mark.parametrize(
    ("coefficients", "words", "bits"), [(COEFFICIENTS, WORDS, 64), (WIDE_COEFFICIENTS, WIDE_WORDS, 128)]
)
def test_every_pair_of_extremes(coefficients: list[int], words: list[int], bits: int) -> None:
    for coefficient in coefficients:
        found = kernels.combine([coefficient], elements(words, bits)[np.newaxis])
        assert found == [coefficient * word for word in words]


@pytest.mark.parametrize("bits", [64, 128])
def test_the_largest_of_all_sums(bits: int) -> None:
    """Nothing is reduced and nothing wraps, whatever the number of rows."""
    prime = P_255 if bits == 64 else P_321
    words = elements([2**bits - 1] * 2000, bits).reshape(1000, 2, *([2] if bits == 128 else []))
    assert kernels.combine([prime - 1] * 1000, words) == [1000 * (prime - 1) * (2**bits - 1)] * 2


@pytest.mark.parametrize("bits", [64, 128])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (0, 3), (3, 0), (7, 17), (83, 165)])
def test_combinations_are_those_of_integers(bits: int, rows: int, columns: int) -> None:
    rng = np.random.default_rng([bits, rows])
    prime = P_255 if bits == 64 else P_321
    coefficients = [number % prime for number in numbers(rng, 384, rows)]
    values = numbers(rng, bits, rows * columns)
    words = elements(values, bits).reshape(rows, columns, *([2] if bits == 128 else []))
    expected = [
        sum(coefficients[row] * values[row * columns + column] for row in range(rows)) for column in range(columns)
    ]
    assert kernels.combine(coefficients, words) == expected


def test_what_cannot_be_combined_is_refused() -> None:
    words = np.ones((2, 3), dtype=np.uint64)
    with pytest.raises(MisuseError, match="from 0 on"):
        kernels.combine([1, -1], words)
    with pytest.raises(MisuseError, match=r"words: expected uint64 of shape \(1, any\)"):
        kernels.combine([1], words)
    with pytest.raises(MisuseError, match="words: expected uint64"):
        kernels.combine([1, 2], words.astype(np.int64))


# Projections


def matrix(key: bytes, rows: int, columns: int) -> list[list[int]]:
    """R entry by entry, from blocks of the reference's cipher."""
    size = 2 * rows * -(-columns // 8)
    stream = b"".join(reference.aes(key, NONCE << 64 | i).to_bytes(16, "little") for i in range(-(-size // 16)))

    def bit(group: int, kind: int, row: int, column: int) -> int:
        return stream[2 * rows * group + rows * kind + row] >> column & 1

    return [
        [bit(column // 8, 0, row, column % 8) - bit(column // 8, 1, row, column % 8) for column in range(columns)]
        for row in range(rows)
    ]


@in_turn("bits", [64, 128])
@in_turn("rows, columns", [(8, 0), (8, 1), (8, 9), (24, 127), (16, 128), (40, 129), (8, 300)])
def test_projections_are_those_of_the_matrix(bits: int, rows: int, columns: int) -> None:
    weights = numbers(np.random.default_rng([bits, columns]), bits, columns)
    expected = [
        sum(entry * weight for entry, weight in zip(row, weights, strict=True)) for row in matrix(KEY, rows, columns)
    ]
    found = integers(kernels.project(KEY, NONCE, rows, elements(weights, bits)))
    assert found == [number % 2**bits for number in expected]


@in_turn("bits", [64, 128])
@in_turn("extreme", [0, 1, -1, 1 - 2**63, 2**63, -(2**64), 2**127])
def test_projections_of_extremes(bits: int, extreme: int) -> None:
    weights = [extreme % 2**bits] * 21
    expected = [sum(row) * extreme % 2**bits for row in matrix(KEY, 16, 21)]
    assert integers(kernels.project(KEY, NONCE, 16, elements(weights, bits))) == expected


def test_long_updates_continue_the_keystream() -> None:
    """The columns behind the first 10,000 are those that come next in the keystream."""
    weights = np.zeros(10_009, dtype=np.uint64)
    weights[10_000:] = 1
    stream = kernels.keystream(KEY, nonce=NONCE, count=-(-2 * 8 * 1252 // 16)).reshape(-1).view(np.uint8)
    bits = np.unpackbits(stream[: 1252 * 16].reshape(1252, 2, 8, 1), axis=3, bitorder="little").astype(np.int64)
    entries = (bits[:, 0] - bits[:, 1]).transpose(1, 0, 2).reshape(8, -1)
    expected = entries[:, 10_000:10_009].sum(axis=1)
    assert kernels.project(KEY, NONCE, 8, weights).view(np.int64).tolist() == expected.tolist()


def test_what_cannot_be_projected_is_refused() -> None:
    for rows in (0, 12, -8):
        with pytest.raises(MisuseError, match="a multiple of 8 rows"):
            kernels.project(KEY, NONCE, rows, np.ones(3, dtype=np.uint64))
    for nonce in (-1, 2**64):
        with pytest.raises(MisuseError, match="64-bit nonce"):
            kernels.project(KEY, nonce, 8, np.ones(3, dtype=np.uint64))
    with pytest.raises(MisuseError, match="weights: expected uint64"):
        kernels.project(KEY, NONCE, 8, np.ones(3, dtype=np.uint32))
    with pytest.raises(MisuseError, match="16 bytes"):
        kernels.project(KEY + b".", NONCE, 8, np.ones(3, dtype=np.uint64))
