"""Randomness is an argument: a callable that returns as many fresh bytes as it is asked for.

Deployed parties pass the operating system's source. `SeededSource` is for tests and simulation only: a party that uses
it announces so in its handshake, which fails with a party that does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeAlias

from fsl_async.digests import Domain

Randomness: TypeAlias = Callable[[int], bytes]
"""Returns as many uniformly random bytes as it is asked for, as `os.urandom` does."""


class SeededSource:
    """A reproducible byte stream, determined by a seed and the party it belongs to; never for real secrets."""

    def __init__(self, seed: int, *path: str) -> None:
        name = "/".join((str(seed), *path)).encode()
        self._key = hashlib.blake2b(name, person=Domain.SIMULATION.value).digest()
        self._drawn = 0

    def __call__(self, size: int) -> bytes:
        """Return the next `size` bytes of the stream."""
        block = self._drawn.to_bytes(8, "little")
        self._drawn += 1
        return hashlib.shake_256(self._key + block).digest(size)
