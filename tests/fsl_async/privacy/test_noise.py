"""Doses, and shares with noise on every element."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from fsl_async import Ring, kernels
from fsl_async.privacy.doses import Doses, doses
from fsl_async.privacy.noise import noise_key, noised

KEY = bytes(range(16))


@pytest.mark.parametrize(("noise", "bound"), [(12.7, 2**17), (1.0, 1), (0.69, 10), (1e-9, 1), (3.0, 2**100)])
def test_the_dose_is_the_least_integer_that_is_enough(noise: float, bound: int) -> None:
    sigma = doses(noise, bound).values
    assert sigma >= Fraction(noise) * bound
    assert sigma == 1 or sigma - 1 < Fraction(noise) * bound


def test_counts_and_values_share_a_round() -> None:
    noise, bound, rows = Fraction(12.7), 2**17, 50
    both = doses(12.7, bound, rows)
    spent = Fraction(bound**2, both.values**2) + Fraction(rows, both.counts**2)
    assert spent <= 1 / noise**2
    assert doses(12.7, bound) == Doses(doses(12.7, bound).values, 0)


@pytest.mark.parametrize("bits", [32, 64, 128])
def test_every_element_gets_noise_of_its_own(bits: int) -> None:
    ring, sigma, count = Ring(bits), 1000, 9000
    share = np.random.default_rng(bits).bytes(count * ring.element_bytes)
    noisy = noised(ring, share, sigma, KEY)
    change = ring.to_integers(ring.subtract(ring.from_bytes(noisy, count), ring.from_bytes(share, count)))
    errors = np.array([int(value) for value in change], dtype=float)
    assert 0.9 < errors.std() / sigma < 1.1
    assert len(set(errors[:50])) > 40
    for lag in (1, kernels.NOISE_CHUNK):  # the next element's, and that of the next chunk
        assert abs(np.corrcoef(errors[:-lag], errors[lag:])[0, 1]) < 0.07


def test_noise_wraps_with_the_ring() -> None:
    ring = Ring(32)
    share = np.full(2000, 2**31 - 1, dtype="<u4").tobytes()
    change = ring.subtract(ring.from_bytes(noised(ring, share, 5, KEY), 2000), ring.from_bytes(share, 2000))
    assert (np.abs(ring.to_integers(change)) < 50).all()


def test_the_key_is_of_one_server_one_round_one_list_of_submissions_and_one_use() -> None:
    choices = [(bytes(32), bytes(31) + b"\1"), (b"1", b"2"), (b"a", b"b"), ("values 0", "counts")]
    keys = {noise_key(*chosen) for chosen in itertools.product(*choices)}
    assert len(keys) == 16
    assert all(len(key) == 16 for key in keys)


@pytest.mark.parametrize("width", [1, 3, 5000])
def test_a_row_has_the_same_noise_whichever_rows_are_opened_beside_it(width: int) -> None:
    """Otherwise the other server, which has a say in what is opened, could have a row's noise drawn again."""
    ring, rows = Ring(64), 300_000 // width
    whole = ring.from_bytes(noised(ring, bytes(rows * width * 8), 1000, KEY, range(rows), width), rows * width)
    draw = np.random.default_rng(width)
    for size in (1, 5, rows // 2):
        opened = np.sort(draw.choice(rows, size, replace=False)).astype(np.uint32)
        for some in (opened, range(rows - size, rows)):
            part = ring.from_bytes(noised(ring, bytes(size * width * 8), 1000, KEY, some, width), size * width)
            assert np.array_equal(part.reshape(size, width), whole.reshape(rows, width)[np.asarray(some)])


def test_an_empty_share_stays_empty() -> None:
    assert noised(Ring(64), b"", 3, KEY) == b""
