"""The sampler's law is the discrete Gaussian's, exactly: against the law, and bit by bit in both lanes."""

import math

import numpy as np
import numpy.typing as npt
import pytest

from fsl_async import MisuseError, kernels
from fsl_async.kernels import gaussian
from tests.support.reference_noise import law

KEY = bytes(range(16))


def signed(samples: npt.NDArray[np.uint64]) -> list[int]:
    numbers = [low + (high << 64) for low, high in samples.tolist()]
    return [number - (number >> 127 << 128) for number in numbers]


def drawn(sigma: int, chunks: int) -> npt.NDArray[np.int64]:
    parts = [kernels.discrete_gaussian(KEY, chunk, sigma, kernels.NOISE_CHUNK) for chunk in range(chunks)]
    return np.concatenate(parts)[:, 0].astype(np.int64)


def chi_squared(sigma: int, samples: npt.NDArray[np.int64]) -> tuple[float, int]:
    """The statistic over the cells that expect at least 10, and one for all others; its degrees of freedom."""
    cells = {x: p * len(samples) for x, p in law(sigma, 12 * sigma + 12).items() if p * len(samples) >= 10}
    seen = {x: int((samples == x).sum()) for x in cells}
    rest = len(samples) - sum(cells.values())
    statistic = math.fsum((seen[x] - cells[x]) ** 2 / cells[x] for x in cells)
    return statistic + (len(samples) - sum(seen.values()) - rest) ** 2 / rest, len(cells)


@pytest.mark.parametrize("sigma", [1, 2, 3, 5, 16, 100])
def test_the_law_is_exact(sigma: int) -> None:
    statistic, freedom = chi_squared(sigma, drawn(sigma, 100))
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom), (statistic, freedom)  # the key is fixed


def test_another_law_would_be_noticed() -> None:
    rounded = np.rint(np.random.default_rng(1).normal(0, 2, 256_000)).astype(np.int64)
    statistic, freedom = chi_squared(2, rounded)
    assert statistic - freedom > 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("sigma", [1, 7, 2**16 + 1, 2**26, 2**40 - 1, 2**57 + 1, 2**63 + 5, 2**64 + 1, 3 * 2**118])
def test_variance_and_shape(sigma: int) -> None:
    parts = [signed(kernels.discrete_gaussian(KEY, chunk, sigma, kernels.NOISE_CHUNK)) for chunk in range(10)]
    ratios = np.array([x / sigma for part in parts for x in part])
    assert abs(ratios.mean()) < 5 / math.sqrt(len(ratios))
    assert abs(ratios.var() - 1) < 5 * math.sqrt(2 / len(ratios)) + 0.09 * (sigma == 1)
    assert abs((ratios**4).mean() / ratios.var() ** 2 - 3) < 5 * math.sqrt(24 / len(ratios))


def test_fewer_samples_are_the_first_ones() -> None:
    whole = kernels.discrete_gaussian(KEY, 0, 10**6, kernels.NOISE_CHUNK)
    assert (kernels.discrete_gaussian(KEY, 0, 10**6, 100) == whole[:100]).all()
    assert kernels.discrete_gaussian(KEY, 0, 10**6, 0).shape == (0, 2)


def test_a_chunk_whose_words_run_out_gets_more_of_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kernels.discrete_gaussian(KEY, 0, 2**57 + 1, kernels.NOISE_CHUNK)
    monkeypatch.setattr("fsl_async.kernels.gaussian.WORDS", 64)
    assert (kernels.discrete_gaussian(KEY, 0, 2**57 + 1, kernels.NOISE_CHUNK) == whole).all()


@pytest.mark.parametrize("sigma", [0, -1, 2**120 + 1, 2.0, True])
def test_another_sigma_is_refused(sigma: int) -> None:
    with pytest.raises(MisuseError, match="sigma must be an integer from 1 to 2\\^120"):
        kernels.discrete_gaussian(KEY, 0, sigma, 1)


def test_more_than_a_chunk_is_refused() -> None:
    with pytest.raises(MisuseError, match="samples of a chunk"):
        kernels.discrete_gaussian(KEY, 0, 1, kernels.NOISE_CHUNK + 1)


@pytest.mark.parametrize("sigma", [1, 2, 5, 2**16, 2**16 + 1, 2**57, 2**57 + 1, 2**64 - 1, 2**64, 2**90 + 3, 2**120])
def test_lanes_draw_alike(sigma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's words against Python's integers, of which none has a size; words run out on the way."""
    monkeypatch.setattr(gaussian, "WORDS", 64)
    before, drawn = kernels.active_isa(), []
    for name in (before, "plain"):
        kernels.select_isa(name)
        drawn.append(kernels.discrete_gaussian(KEY, 3, sigma, 300).tolist())
    kernels.select_isa(before)
    assert drawn[0] == drawn[1]
