"""Exact samples of the discrete Gaussian N_Z(0, σ²), from a stream of uniform words: integers only, no rounding.

A discrete Laplace variable x = u + σ·v with u below σ is accepted with probability exp(-(|x| - σ)² / 2σ²), where

    (|x| - σ)² / 2σ²  =  (v - 1)²/2 + (v - 1)·u/σ + (u/σ)²/2      for v > 0, and ((σ - u)/σ)²/2 for v = 0.

Each summand is tested on its own, and a test needs events of probability u/σ, 1/2 and 1/k alone: u is compared with a
number drawn below σ, and nothing is ever larger than k·σ. So the sampler is exact for every σ that two words hold.
What it returns is reduced modulo 2^128, which for a share is the reduction that its ring makes anyway.

Rules: a sample is a function of the words from its first one on, so samples do not depend on how many were asked for
at once; a sample whose words have run out is not returned. Its time depends on the sample (see docs/privacy.md).

Source: Canonne, Kamath, Steinke, "The Discrete Gaussian for Differential Privacy" (2020), algorithms 1 to 3; the
summands are tested apart as in Karney, "Sampling exactly from the normal distribution" (2016); numbers below a bound as
in Lemire, "Fast Random Integer Generation in an Interval" (2019).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.kernels.aes import keystream
from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.lane import passes

LARGEST_SIGMA: Final = 2**120
"""Beyond it two's complement of 128 bits has no room for a hundred σ."""

NOISE_CHUNK: Final = 4096
"""Samples of one stream."""

WORDS: Final = 65_536
"""Words that are made for them at first, 16 a sample: it takes 13 to 15, and up to 23 beyond `NARROW`."""

Words = npt.NDArray[np.uint64]

NARROW, MOST_AT_ONCE = np.uint64(2**57), np.uint64(64)
"""Up to that σ a number below k·σ is drawn as one word, for k up to 64; beyond, one below k and one below σ."""


class Scale(NamedTuple):
    """σ in two words, and the mask of the bits of its high one."""

    low: np.uint64
    high: np.uint64
    mask: np.uint64


def discrete_gaussian(key: bytes, chunk: int, sigma: int, count: int) -> Blocks:
    """The first samples of one chunk of a key's noise.

    Args:
        key: 16 bytes; the same key gives the same samples.
        chunk: which of the key's streams, from 0.
        sigma: σ, an integer from 1 to 2^120.
        count: how many samples, at most `NOISE_CHUNK`.

    Returns:
        uint64 (count, 2): two's complement of 128 bits, low word first.

    Raises:
        MisuseError: an argument is out of its range.
    """
    if type(sigma) is not int or not 1 <= sigma <= LARGEST_SIGMA:
        raise MisuseError(f"noise: sigma must be an integer from 1 to 2^120, not {sigma!r}")
    if not 0 <= count <= NOISE_CHUNK:
        raise MisuseError(f"noise: from 0 to {NOISE_CHUNK} samples of a chunk expected, not {count}")
    samples = np.empty((count, 2), dtype=np.uint64)
    words = WORDS if sigma <= NARROW else 2 * WORDS
    while passes().sample_all(_stream(key, chunk, words), _scale(sigma), samples) < count:
        words *= 2  # the longer stream begins with the same words, and so with the same samples
    return samples


def _stream(key: bytes, chunk: int, words: int) -> Words:
    stream: Words = keystream(key, nonce=chunk, count=words // 2).reshape(-1)
    stream.flags.writeable = False
    return stream


def _scale(sigma: int) -> Scale:
    low, high = sigma & (2**64 - 1), sigma >> 64
    return Scale(np.uint64(low), np.uint64(high), np.uint64((1 << ((sigma - 1) >> 64).bit_length()) - 1))
