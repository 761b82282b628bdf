"""Which rows are more than noise, and how far noise takes a sum."""

import numpy as np
import pytest

from fsl_async import kernels
from fsl_async.privacy.doses import largest_noise, noise_norm
from fsl_async.privacy.threshold import SCALE, kept_rows, quantile, threshold

KEY = bytes(range(16))


@pytest.mark.parametrize(
    ("width", "expected"),
    [(1, 10.827566), (2, 13.815511), (3, 16.266236), (8, 26.124482), (18, 42.312396), (64, 104.716325)],
)
def test_quantiles_that_are_known(width: int, expected: float) -> None:
    assert quantile(width) / SCALE == pytest.approx(expected, abs=2e-6)


def test_quantiles_of_wide_rows() -> None:
    assert quantile(1000) / SCALE == pytest.approx(1143.917093, abs=2e-6)
    assert quantile(2**20) / SCALE == pytest.approx(1053056.834694, abs=2e-6)


def both_doses(sigma: int, rows: int, width: int) -> np.ndarray:
    chunks = -(-2 * rows * width // kernels.NOISE_CHUNK)
    drawn = [kernels.discrete_gaussian(KEY, chunk, sigma, kernels.NOISE_CHUNK) for chunk in range(chunks)]
    flat = np.concatenate(drawn)[: 2 * rows * width, 0].astype(np.int64)
    return flat.reshape(2, rows, width).sum(axis=0)


@pytest.mark.parametrize("width", [1, 4, 18])
def test_of_rows_of_noise_one_in_a_thousand_is_kept(width: int) -> None:
    rows = 40_000 // width
    kept = int(kept_rows(both_doses(2000, rows, width), 2000).sum())
    assert kept <= rows / 1000 + 5 * (rows / 1000) ** 0.5 + 1


@pytest.mark.parametrize("sigma", [3, 2**20, 2**40, 2**70])
def test_the_threshold_is_exact_at_every_size(sigma: int) -> None:
    most = threshold(2, sigma)
    side = int(most // 2) ** 0.5
    below, above = int(side * 0.999), int(side * 1.001) + 2
    rows = np.array([[0, 0], [below, -below], [above, above], [-above, above], [10 * above, 0]], dtype=object)
    rows = rows if sigma > 2**40 else rows.astype(np.int64)
    assert kept_rows(rows, sigma).tolist() == [False, False, True, True, True]


def test_a_row_at_the_threshold_is_not_kept() -> None:
    most = threshold(1, 1000)
    root = int(most**0.5)
    assert kept_rows(np.array([[root], [-root], [root + 1], [-root - 1]]), 1000).tolist() == [False, False, True, True]


def test_large_rows_do_not_overflow() -> None:
    assert kept_rows(np.array([[2**62, -(2**62)], [-(2**63), 0], [1, 1]]), 2**20).tolist() == [True, True, False]


def test_noise_stays_within_its_tails() -> None:
    sigma, width = 1000, 18
    rows = both_doses(sigma, 500, width)
    assert np.abs(rows).max() <= largest_noise(sigma, rows.size)
    assert float((rows**2).sum()) ** 0.5 <= noise_norm(sigma, rows.size)
    assert noise_norm(sigma, rows.size) < 1.5 * float((rows**2).sum()) ** 0.5
    assert largest_noise(sigma, rows.size) < 3 * np.abs(rows).max()
