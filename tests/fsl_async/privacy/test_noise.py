"""Doses, and shares with noise on every element."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from fsl_async import Ring
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
    ring, sigma, count = Ring(bits), 1000, 6000
    share = np.random.default_rng(bits).bytes(count * ring.element_bytes)
    noisy = noised(ring, share, sigma, KEY)
    change = ring.to_integers(ring.subtract(ring.from_bytes(noisy, count), ring.from_bytes(share, count)))
    errors = np.array([int(value) for value in change], dtype=float)
    assert 0.9 < errors.std() / sigma < 1.1
    assert len(set(errors[:50])) > 40
    for lag in (1, 2560):  # the next element's, and that of the next chunk
        assert abs(np.corrcoef(errors[:-lag], errors[lag:])[0, 1]) < 0.07


def test_noise_wraps_with_the_ring() -> None:
    ring = Ring(32)
    share = np.full(2000, 2**31 - 1, dtype="<u4").tobytes()
    change = ring.subtract(ring.from_bytes(noised(ring, share, 5, KEY), 2000), ring.from_bytes(share, 2000))
    assert (np.abs(ring.to_integers(change)) < 50).all()


def test_the_key_is_of_one_round_and_one_share() -> None:
    keys = {noise_key(bytes(16), round_id, share) for round_id in (b"1", b"2") for share in (b"a", b"b")}
    assert len(keys) == 4
    assert all(len(key) == 16 for key in keys)
    assert noise_key(bytes(16), b"1", b"a") != noise_key(bytes(15) + b"\1", b"1", b"a")


def test_an_empty_share_stays_empty() -> None:
    assert noised(Ring(64), b"", 3, KEY) == b""
