"""Randomness is an argument: a callable that returns so many fresh bytes.

Deployed parties pass the operating system's source. `SeededSource` exists for tests and simulation alone: a party that
runs on it announces so in its handshake, and cannot complete one with a party that does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeAlias

from fsl_async.digests import Domain

Randomness: TypeAlias = Callable[[int], bytes]


class SeededSource:
    """A reproducible byte stream named by a seed and the party it belongs to; never for secrets that matter."""

    def __init__(self, seed: int, *path: str) -> None:
        name = "/".join((str(seed), *path)).encode()
        self._key = hashlib.blake2b(name, person=Domain.SIMULATION.value).digest()
        self._drawn = 0

    def __call__(self, size: int) -> bytes:
        """Return the next `size` bytes of the stream."""
        block = self._drawn.to_bytes(8, "little")
        self._drawn += 1
        return hashlib.shake_256(self._key + block).digest(size)
