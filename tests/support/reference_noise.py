"""The discrete Gaussian in Python's integers, one event after the other, from the words that the kernel has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from fsl_async import kernels


class Words:
    """The uniform words of a chunk of a key's noise, as many as are asked for."""

    def __init__(self, key: bytes, chunk: int) -> None:
        self._key, self._chunk = key, chunk
        self._words = self._stream()

    def _stream(self) -> Iterator[int]:
        count = 64
        done = 0
        while True:
            words = kernels.keystream(self._key, nonce=self._chunk, count=count).reshape(-1).tolist()
            yield from words[done:]
            done, count = len(words), 2 * count

    def word(self) -> int:
        return next(self._words)

    def below(self, bound: int) -> int:
        """A uniform number below a bound of one word: every number has as many words that give it."""
        while (product := self.word() * bound) % 2**64 < 2**64 % bound:
            pass
        return product >> 64

    def below_sigma(self, sigma: int) -> int:
        """A uniform number below σ, of one word or two."""
        if sigma < 2**64:
            return self.below(sigma)
        while True:
            number = self.word() | (self.word() & ((1 << ((sigma - 1) >> 64).bit_length()) - 1)) << 64
            if number < sigma:
                return number


def happens(words: Words, ratio: Fraction, sigma: int, k: int) -> bool:
    """True with probability ratio/k, where the ratio is a number of σ-ths."""
    u = int(ratio * sigma)
    if sigma <= 2**57 and k <= 64:
        return words.below(k * sigma) < u
    return words.below(k) == 0 and words.below_sigma(sigma) < u


def survives_ratio(words: Words, ratio: Fraction, sigma: int) -> bool:
    """True with probability exp(-ratio)."""
    k = 1
    while happens(words, ratio, sigma, k):
        k += 1
    return k % 2 == 1


def survives_half_square(words: Words, ratio: Fraction, sigma: int) -> bool:
    """True with probability exp(-ratio²/2)."""
    k = 1
    while happens(words, ratio, sigma, 2 * k) and happens(words, ratio, sigma, 1):
        k += 1
    return k % 2 == 1


def survives_share(words: Words, parts: int) -> bool:
    """True with probability exp(-1/parts)."""
    k = 2 if parts == 1 else 1
    while words.below(k * parts) == 0:
        k += 1
    return k % 2 == 1


def is_accepted(words: Words, ratio: Fraction, sigma: int, v: int) -> bool:
    """True with probability exp(-(|x| - σ)²/2σ²), where x = (ratio + v)·σ."""
    if v == 0:
        return survives_half_square(words, 1 - ratio, sigma)
    return (
        all(survives_share(words, 2) for _ in range((v - 1) ** 2))
        and all(survives_ratio(words, ratio, sigma) for _ in range(v - 1))
        and survives_half_square(words, ratio, sigma)
    )


def sample(words: Words, sigma: int) -> int:
    """One sample of N_Z(0, σ²)."""
    while True:
        ratio = Fraction(words.below_sigma(sigma), sigma)
        if not survives_ratio(words, ratio, sigma):
            continue
        v = 0
        while survives_share(words, 1):
            v += 1
        negative = words.below(2) == 1
        if negative and v == 0 and ratio == 0:
            continue
        if is_accepted(words, ratio, sigma, v):
            size = int((ratio + v) * sigma)
            return -size if negative else size


def law(sigma: int, reach: int) -> dict[int, float]:
    """The probabilities of the whole numbers up to a reach on both sides."""
    weights = {x: math.exp(-x * x / (2 * sigma * sigma)) for x in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {x: weight / total for x, weight in weights.items()}
