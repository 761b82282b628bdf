"""The discrete Gaussian's sampler in Python's integers, one event after the other, from the kernel's words."""

from __future__ import annotations

from collections.abc import Iterator

from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.gaussian import MOST_AT_ONCE, NARROW, Scale, Words

WORD = 2**64


def sample_all(words: Words, scale: Scale, samples: Blocks) -> int:
    """Fill `samples`, and return how many were made before the words ran out."""
    source = _Source(words.tolist(), int(scale.low) + int(scale.high) * WORD, int(scale.mask))
    made = 0
    try:
        while made < len(samples):
            number = source.draw() % WORD**2
            samples[made] = number % WORD, number // WORD
            made += 1
    except StopIteration:
        pass
    return made


class _Source:
    """Uniform words, and events of the probabilities that a sample needs."""

    def __init__(self, words: list[int], sigma: int, mask: int) -> None:
        self._words: Iterator[int] = iter(words)
        self._sigma = sigma
        self._mask = mask

    def draw(self) -> int:
        """One sample of N_Z(0, σ²)."""
        while True:
            u = self._below_sigma()
            if not self._survives_ratio(u):
                continue
            v = 0
            while self._survives_share(1):
                v += 1
            negative = self._below(2) == 1
            if negative and u == v == 0:
                continue  # 0 would come twice
            if self._is_accepted(u, v):
                size = u + v * self._sigma
                return -size if negative else size

    def _below(self, bound: int) -> int:
        """A uniform number below a bound of one word: every number has as many words that give it."""
        while True:
            product = next(self._words) * bound
            if product % WORD >= WORD % bound:
                return product // WORD

    def _below_sigma(self) -> int:
        if self._sigma < WORD:
            return self._below(self._sigma)
        while True:
            number = next(self._words) | (next(self._words) & self._mask) << 64
            if number < self._sigma:
                return number

    def _happens(self, u: int, k: int) -> bool:
        """True with probability u/(k·σ)."""
        if self._sigma <= NARROW and k <= MOST_AT_ONCE:
            return self._below(k * self._sigma) < u
        return self._below(k) == 0 and self._below_sigma() < u

    def _survives_ratio(self, u: int) -> bool:
        """True with probability exp(-u/σ)."""
        k = 1
        while self._happens(u, k):
            k += 1
        return k % 2 == 1

    def _survives_half_square(self, u: int) -> bool:
        """True with probability exp(-(u/σ)²/2)."""
        k = 1
        while self._happens(u, 2 * k) and self._happens(u, 1):
            k += 1
        return k % 2 == 1

    def _survives_share(self, parts: int) -> bool:
        """True with probability exp(-1/parts); parts are 1 or 2."""
        k = 3 - parts  # an event of probability 1/1 need not be drawn
        while self._below(k * parts) == 0:
            k += 1
        return k % 2 == 1

    def _is_accepted(self, u: int, v: int) -> bool:
        """True with probability exp(-(|x| - σ)²/2σ²), where x = u + v·σ."""
        if v == 0:
            return self._survives_half_square(self._sigma - u)
        for _ in range((v - 1) ** 2):
            if not self._survives_share(2):
                return False
        for _ in range(v - 1):
            if not self._survives_ratio(u):
                return False
        return self._survives_half_square(u)
