"""A listener's limits, and the counts that it keeps of them.

Rules: a connection is counted before anything is read from it, until it ends, however it ends. Nobody can keep others
out by holding places: a handshake that hangs yields to a newer one, and the keys that must always get in (the other
server's) have places of their own. The clock is trio's, so that a virtual one works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import WeakSet

import trio

from fsl_async.errors import MisuseError

_ENTRIES_BEFORE_SWEEP = 4_096


@dataclass(frozen=True, slots=True)
class Limits:
    """A listener's limits.

    An address is what one party is likely to have to itself: an IPv4 address, or the /64 network of an IPv6 one.

    Attributes:
        connections: admitted connections at a time, in all.
        half_open: besides these, connections that are still shaking hands. When there is one more, the oldest of the
            address with the most is closed: an honest handshake takes a few round trips, a silent connection its whole
            deadline.
        handshakes_per_second: new connections per second and address, in the long run.
        burst: new connections that one address may make at once, for example an office behind one address whose
            clients start on the hour. Each takes half a millisecond, so the number is generous.
        per_key: admitted connections at a time with one static key.
        per_key_exceptions: other numbers for some static keys, e.g. the peer server's; these have their own places,
            beyond `connections`.
    """

    connections: int = 10_000
    half_open: int = 256
    handshakes_per_second: float = 20.0
    burst: int = 100
    per_key: int = 4
    per_key_exceptions: Mapping[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        counts = (self.connections, self.half_open, self.burst, self.per_key, *self.per_key_exceptions.values())
        if min(counts) < 1 or not self.handshakes_per_second > 0:
            raise MisuseError(f"every limit of a listener must be positive: {self}")

    @property
    def most_at_once(self) -> int:
        """Connections that may exist at a time, shaking hands or admitted."""
        return self.connections + self.half_open + 1 + sum(self.per_key_exceptions.values())


class RateLimiter:
    """Token buckets, one for each name; full buckets are forgotten, so that memory follows recent activity.

    A bucket is kept as the time at which it would be full again: a token costs one interval, and the bucket holds
    `burst` of them (the generic cell rate algorithm).
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self._interval = 1 / per_second
        self._depth = burst * self._interval
        self._empty_until: dict[str, float] = {}
        self._sweep_at = _ENTRIES_BEFORE_SWEEP

    def admits(self, name: str) -> bool:
        """Takes a token from a bucket, if there is one."""
        now = trio.current_time()
        full_at = self._full_at(name, now)
        if full_at - now > self._depth * (1 + 1e-9):
            return False
        self._empty_until[name] = full_at
        return True

    async def wait(self, name: str) -> None:
        """Takes a token from a bucket, and waits until it is there."""
        await trio.lowlevel.checkpoint_if_cancelled()
        now = trio.current_time()
        full_at = self._empty_until[name] = self._full_at(name, now)
        if full_at - now > self._depth:
            await trio.sleep(full_at - now - self._depth)

    def _full_at(self, name: str, now: float) -> float:
        """Returns when a bucket will be full again if a token is taken now."""
        if len(self._empty_until) >= self._sweep_at:
            self._sweep(now)
        return max(now, self._empty_until.get(name, now)) + self._interval

    def _sweep(self, now: float) -> None:
        """Forgets full buckets; the next time when there are twice as many as remain, so that it stays cheap."""
        self._empty_until = {address: time for address, time in self._empty_until.items() if time > now}
        self._sweep_at = max(_ENTRIES_BEFORE_SWEEP, 2 * len(self._empty_until))


class HandshakeBook:
    """The handshakes under way, by address, oldest first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: dict[str, list[trio.CancelScope]] = {}
        self._gave_way: WeakSet[trio.CancelScope] = WeakSet()

    def gave_way(self, scope: trio.CancelScope) -> bool:
        """Whether a handshake was cancelled because there was one too many."""
        return scope in self._gave_way

    @contextmanager
    def entered(self, address: str, scope: trio.CancelScope) -> Iterator[None]:
        """Counts one handshake for as long as the block lasts; if that is one too many, another one is cancelled."""
        if sum(map(len, self._under_way.values())) >= self._most:
            self._cancel_one()
        self._under_way.setdefault(address, []).append(scope)
        try:
            yield
        finally:
            if scope in self._under_way.get(address, ()):
                self._strike(address, scope)

    def _cancel_one(self) -> None:
        crowded = max(self._under_way, key=lambda address: len(self._under_way[address]))
        oldest = self._under_way[crowded][0]
        self._strike(crowded, oldest)
        self._gave_way.add(oldest)
        oldest.cancel()

    def _strike(self, address: str, scope: trio.CancelScope) -> None:
        self._under_way[address].remove(scope)
        if not self._under_way[address]:
            del self._under_way[address]


class PlaceBook:
    """The admitted connections, in all and with each static key."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._connections: dict[bytes, int] = {}
        self._common = 0

    def shortage(self, key: bytes) -> str | None:
        """Returns the reason if there is no place for the holder of `key`, None if there is one."""
        most = self._limits.per_key_exceptions.get(key, self._limits.per_key)
        if self._connections.get(key, 0) >= most:
            return f"{most} connections with this key are open already; close one first"
        if self._is_common(key) and self._common >= self._limits.connections:
            return f"all {self._limits.connections} connections are taken"
        return None

    @contextmanager
    def entered(self, key: bytes) -> Iterator[None]:
        """Counts one connection for as long as the block lasts."""
        self._connections[key] = self._connections.get(key, 0) + 1
        self._common += self._is_common(key)
        try:
            yield
        finally:
            self._common -= self._is_common(key)
            self._connections[key] -= 1
            if not self._connections[key]:
                del self._connections[key]

    def _is_common(self, key: bytes) -> bool:
        return key not in self._limits.per_key_exceptions
