"""What a listener allows strangers, and the books it keeps about it.

Rules kept here: whoever enters is counted before anything is read from it, and counted out however it leaves; the
clock is trio's, so that a virtual one works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from fsl_async.errors import MisuseError

__all__ = ["KeyBook", "Limits", "RateLimiter"]

_ENTRIES_BEFORE_SWEEP = 4_096


@dataclass(frozen=True, slots=True)
class Limits:
    """A listener's limits.

    Attributes:
        connections: connections at a time, in all; further ones wait in the network's queue.
        half_open: of these, connections still shaking hands.
        handshakes_per_second: new connections per second and address, in the long run.
        burst: new connections that one address may make at once.
        per_key: connections at a time with one static key.
        per_key_exceptions: other numbers for some static keys, e.g. the peer server's.
    """

    connections: int = 10_000
    half_open: int = 256
    handshakes_per_second: float = 20.0
    burst: int = 5
    per_key: int = 4
    per_key_exceptions: Mapping[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if min(self.connections, self.half_open, self.burst, self.per_key) < 1 or self.handshakes_per_second <= 0:
            raise MisuseError(f"every limit of a listener must be positive: {self}")

    def for_key(self, key: bytes) -> int:
        """Returns how many connections the holder of `key` may have."""
        return self.per_key_exceptions.get(key, self.per_key)


class RateLimiter:
    """Token buckets, one per address; full buckets are forgotten, so that memory follows recent activity."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._interval = 1 / per_second
        self._depth = burst * self._interval
        self._empty_until: dict[str, float] = {}

    def admits(self, address: str) -> bool:
        """Takes a token from the address's bucket, if there is one.

        A bucket is kept as the time at which it would be full again: a token costs one interval, and the bucket holds
        `burst` of them (the generic cell rate algorithm).
        """
        now = trio.current_time()
        if len(self._empty_until) >= _ENTRIES_BEFORE_SWEEP:
            self._sweep(now)
        full_at = max(now, self._empty_until.get(address, now)) + self._interval
        if full_at - now > self._depth * (1 + 1e-9):
            return False
        self._empty_until[address] = full_at
        return True

    def _sweep(self, now: float) -> None:
        self._empty_until = {address: time for address, time in self._empty_until.items() if time > now}


class KeyBook:
    """Counts the connections with each static key."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connections: dict[bytes, int] = {}

    def is_full(self, key: bytes) -> bool:
        """Tells whether the holder of `key` has all the connections it may have."""
        return self._connections.get(key, 0) >= self._limits.for_key(key)

    @contextmanager
    def entered(self, key: bytes) -> Iterator[None]:
        """Counts one connection for as long as the block lasts."""
        self._connections[key] = self._connections.get(key, 0) + 1
        try:
            yield
        finally:
            self._connections[key] -= 1
            if not self._connections[key]:
                del self._connections[key]
