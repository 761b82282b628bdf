"""A prime field on arrays of 64-bit words: 2^61 - 1, whose products are compiled, and small primes for whole tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from examples.sketching.inner_products import PRIME, Residues, multiply_residues
from fsl_async.errors import MisuseError
from fsl_async.randomness import Randomness

__all__ = ["MERSENNE_61", "PrimeField", "Residues"]

SMALL: Final = 2**16
ELEMENT_BYTES: Final = 8


@dataclass(frozen=True)
class PrimeField:
    """Numbers modulo an odd prime; elements are uint64 arrays, below the modulus where they are results.

    Args:
        modulus: 2^61 - 1, or an odd prime below 2^16, which is for exhaustive tests and proves nothing.

    Raises:
        MisuseError: the modulus is something else.
    """

    modulus: int

    def __post_init__(self) -> None:
        small = 2 < self.modulus < SMALL and all(
            self.modulus % factor for factor in range(2, int(self.modulus**0.5) + 1)
        )
        if self.modulus != PRIME and not small:
            raise MisuseError(f"modulus: 2^61 - 1, or an odd prime below 2^16 expected, got {self.modulus}")

    @property
    def compiled(self) -> bool:
        """Whether a kernel knows the modulus."""
        return self.modulus == PRIME

    def of(self, words: npt.NDArray[np.uint64]) -> Residues:
        """Words below 2^64 as elements; uniform words are within 2^-60 of uniform elements."""
        return words % np.uint64(self.modulus)

    def uniform(self, randomness: Randomness, *shape: int) -> Residues:
        """Elements from a source of random bytes, eight for each."""
        drawn = np.frombuffer(randomness(int(np.prod(shape)) * ELEMENT_BYTES), dtype="<u8")
        return self.of(drawn.astype(np.uint64).reshape(shape))

    def add(self, first: Residues, second: Residues) -> Residues:
        """Sums of elements."""
        return self.of(first + second)

    def subtract(self, first: Residues, second: Residues) -> Residues:
        """Differences of elements."""
        return self.of(first + (np.uint64(self.modulus) - second))

    def multiply(self, first: Residues, second: Residues) -> Residues:
        """Products of elements."""
        first, second = np.broadcast_arrays(first, second)
        return multiply_residues(first, second) if self.compiled else self.of(first * second)

    def total(self, elements: Residues) -> Residues:
        """Sums along the first axis."""
        low, high = elements & np.uint64(2**32 - 1), elements >> np.uint64(32)
        shifted = np.full(low.shape[1:], 2**32 % self.modulus, dtype=np.uint64)
        upper = self.multiply(self.of(high.sum(axis=0, dtype=np.uint64)), shifted)
        return self.add(self.of(low.sum(axis=0, dtype=np.uint64)), upper)


MERSENNE_61: Final = PrimeField(PRIME)
