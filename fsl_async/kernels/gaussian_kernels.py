"""The sampler's kernel, in words: no number is ever longer than two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.gaussian import MOST_AT_ONCE, NARROW, Scale, Words


@njit(forceinline=True)
def _high_word(left: Any, right: Any) -> Any:
    """The high word of a product of two words."""
    half, low = np.uint64(32), np.uint64(2**32 - 1)
    middle = (left >> half) * (right & low) + ((left & low) * (right & low) >> half)
    carried = (middle & low) + (left & low) * (right >> half)
    return (left >> half) * (right >> half) + (middle >> half) + (carried >> half)


@njit(forceinline=True)
def _below(words: Words, at: Any, bound: Any) -> Any:
    """A uniform number below a bound of one word, and the place in the words after it.

    The high word of a product with the bound: each number has as many words that give it, but for 2^64 mod bound words
    in all, which are passed over.
    """
    wrap = np.uint64(len(words) - 1)
    while True:
        word = words[at & wrap]
        at += np.uint64(1)
        low = word * bound
        if low >= bound or low >= (~bound + np.uint64(1)) % bound:
            return _high_word(word, bound), at


@njit(forceinline=True)
def _below_sigma(words: Words, at: Any, scale: Scale) -> Any:
    """A uniform number below σ, its low and its high word, and the place after it."""
    if scale.high == np.uint64(0):
        low, at = _below(words, at, scale.low)
        return low, np.uint64(0), at
    wrap = np.uint64(len(words) - 1)
    while True:
        low = words[at & wrap]
        high = words[(at + np.uint64(1)) & wrap] & scale.mask
        at += np.uint64(2)
        if high < scale.high or (high == scale.high and low < scale.low):
            return low, high, at


@njit(forceinline=True)
def _happens(words: Words, at: Any, scale: Scale, low: Any, high: Any, k: Any) -> Any:
    """True with probability u/(k·σ), where u = low + 2^64·high is at most σ; and the place after it."""
    if scale.high == np.uint64(0) and scale.low <= NARROW and k <= MOST_AT_ONCE:
        number, at = _below(words, at, k * scale.low)
        return number < low, at
    number, at = _below(words, at, k)
    if number != np.uint64(0):
        return False, at
    other_low, other_high, at = _below_sigma(words, at, scale)
    return other_high < high or (other_high == high and other_low < low), at


@njit(forceinline=True)
def _survives_ratio(words: Words, at: Any, scale: Scale, low: Any, high: Any) -> Any:
    """True with probability exp(-u/σ), and the place after it."""
    k = np.uint64(1)
    while True:
        happens, at = _happens(words, at, scale, low, high, k)
        if not happens:
            return k & np.uint64(1) == np.uint64(1), at
        k += np.uint64(1)


@njit(forceinline=True)
def _survives_half_square(words: Words, at: Any, scale: Scale, low: Any, high: Any) -> Any:
    """True with probability exp(-(u/σ)²/2), and the place after it."""
    k = np.uint64(1)
    while True:
        happens, at = _happens(words, at, scale, low, high, np.uint64(2) * k)
        if happens:
            happens, at = _happens(words, at, scale, low, high, np.uint64(1))
        if not happens:
            return k & np.uint64(1) == np.uint64(1), at
        k += np.uint64(1)


@njit(forceinline=True)
def _survives_share(words: Words, at: Any, parts: Any) -> Any:
    """True with probability exp(-1/parts), and the place after it; parts are 1 or 2."""
    k = np.uint64(3) - parts  # an event of probability 1/1 need not be drawn
    while True:
        number, at = _below(words, at, k * parts)
        if number != np.uint64(0):
            return k & np.uint64(1) == np.uint64(1), at
        k += np.uint64(1)


@njit(forceinline=True)
def _is_accepted(words: Words, at: Any, scale: Scale, low: Any, high: Any, v: int) -> Any:
    """True with probability exp(-(|x| - σ)² / 2σ²), where x = u + σ·v; and the place after it."""
    if v == 0:
        rest = scale.high - high - np.uint64(scale.low < low)
        return _survives_half_square(words, at, scale, scale.low - low, rest)
    for _ in range((v - 1) * (v - 1)):
        survives, at = _survives_share(words, at, np.uint64(2))
        if not survives:
            return False, at
    for _ in range(v - 1):
        survives, at = _survives_ratio(words, at, scale, low, high)
        if not survives:
            return False, at
    return _survives_half_square(words, at, scale, low, high)


@njit(cache=True, nogil=True)
def sample_all(words: Words, scale: Scale, samples: Blocks) -> int:
    """Fill `samples`, and return how many were made before the words ran out; `words` has a power of two of them."""
    at, made = np.uint64(0), 0
    one, zero = np.uint64(1), np.uint64(0)
    while made < len(samples):
        low, high, at = _below_sigma(words, at, scale)
        survives, at = _survives_ratio(words, at, scale, low, high)
        if not survives:
            continue
        v = 0
        while True:
            survives, at = _survives_share(words, at, one)
            if not survives:
                break
            v += 1
        sign, at = _below(words, at, np.uint64(2))
        if sign == one and v == 0 and low == zero and high == zero:
            continue  # 0 would come twice
        accepted, at = _is_accepted(words, at, scale, low, high, v)
        if not accepted:
            continue
        if at > np.uint64(len(words)):
            return made
        for _ in range(v):
            low += scale.low
            high += scale.high + np.uint64(low < scale.low)
        if sign == one:
            low = ~low + one
            high = ~high + np.uint64(low == zero)
        samples[made, 0], samples[made, 1] = low, high
        made += 1
    return made
