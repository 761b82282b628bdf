"""How fast a message must move once it has begun, and how much of it has come.

Rules of pace: what counts is progress of the message itself, not bytes on the wire, so that no peer gains time by
framing. A message that has begun moves at a mean rate, and never stands still for long. A long one must be fast enough
to be through in time, because it occupies memory that others want for as long as it moves.

Rule of memory: it is not reserved because a peer announces a length; it grows with what has come, and a caller's `Room`
may make the message wait before it grows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError
from transport.errors import TooSlowError
from transport.records import BODY_SIZE, RecordReader

_FOREVER = float("inf")


@dataclass(frozen=True, slots=True)
class Pace:
    """What is demanded of a message under way.

    Attributes:
        bytes_per_second: the least mean rate; 0 demands none.
        message_seconds: within which a whole message must be through, however long it is. So the least mean rate of a
            message of n bytes is the larger of `bytes_per_second` and n / `message_seconds`.
        grace: seconds at the beginning in which the rate is not judged.
        silence: seconds for which it may stand still.
    """

    bytes_per_second: float = 8_192
    message_seconds: float = 1_800
    grace: float = 5.0
    silence: float = 30.0

    def __post_init__(self) -> None:
        if not (self.bytes_per_second >= 0 and self.message_seconds > 0 and self.grace > 0 and self.silence > 0):
            raise MisuseError(f"a pace has positive seconds and a rate that is not negative: {self}")

    @property
    def unseen(self) -> int:
        """Bytes that may wait to be read without a wrong verdict: a hundredth of what has to come within the grace."""
        return max(1, int(self.bytes_per_second * self.grace / 100))

    def latest_progress(self, started: float, moved_at: float, moved: int, total: int) -> float:
        """Returns the time by which more must have moved.

        Args:
            started: when the message began, on trio's clock.
            moved_at: when it last moved.
            moved: how many of its bytes have.
            total: how many it has; 0 while that is unknown.
        """
        rate = max(self.bytes_per_second, total / self.message_seconds)
        mean = started + max(self.grace, moved / rate) if rate else _FOREVER
        return min(mean, moved_at + self.silence)


UNHURRIED = Pace(bytes_per_second=0, message_seconds=_FOREVER, silence=_FOREVER)
"""No pace at all."""


class Stopwatch:
    """Judges one message's progress; it runs from the moment it is made.

    Args:
        pace: what is demanded.
        total: the message's length in bytes; 0 while that is unknown.
    """

    def __init__(self, pace: Pace, total: int = 0) -> None:
        self._pace = pace
        self._total = total
        self._started = self._moved_at = trio.current_time()
        self._moved = 0

    @property
    def unseen(self) -> int:
        """Bytes that need not be read as soon as they come; see `Pace.unseen`."""
        return self._pace.unseen

    def deadline(self, moved: int) -> float:
        """Returns the time by which more must move, now that `moved` bytes have."""
        if moved > self._moved:
            self._moved, self._moved_at = moved, trio.current_time()
        return self._pace.latest_progress(self._started, self._moved_at, self._moved, self._total)

    def excuse(self, seconds: float) -> None:
        """Leaves out so many seconds, in which the message waited for us."""
        self._started += seconds
        self._moved_at += seconds

    def too_slow(self) -> TooSlowError:
        """Returns the error that says what moved and what is expected."""
        now = trio.current_time()
        rate = max(self._pace.bytes_per_second, self._total / self._pace.message_seconds)
        return TooSlowError(
            f"{self._moved:,} bytes of a message have moved in {now - self._started:.1f} s and none in the last "
            f"{now - self._moved_at:.1f} s; at least {rate:,.0f} bytes per second are expected, and no pause of more "
            f"than {self._pace.silence:g} s"
        )


_ROOM = 2**19
"""Bytes that are reserved when a message's first bytes come, if it announced as many."""

Progress: TypeAlias = Callable[[int], None]
"""Called with the number of bytes of a message that have been moved so far, its records' overhead included."""

Room: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Called before memory for a message grows, with how many bytes of it have come and how many it is to have room for.

Returns once that is allowed; meanwhile nothing more is read.
"""


def unseen(moved: int) -> None:
    """Ignores progress."""


async def endless(taken: int, size: int) -> None:
    """Allows any size at once."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """No message has been announced."""


@dataclass(slots=True)
class Arriving:
    """A message under way: its length, and what has come of it.

    It begins with what its first record has, in the memory into which that was decrypted; then `_ROOM` bytes are
    reserved, and from there on at most twice as much as has come. (A bytearray that grows by itself takes an eighth
    more each time, and copies all that it has.)

    Attributes:
        total: its length in bytes.
        content: what has come of it, and the room behind.
        taken: how many of its bytes have come.
    """

    total: int
    content: bytearray
    taken: int = 0

    def __post_init__(self) -> None:
        self.taken = len(self.content)

    @property
    def wanted(self) -> int:
        """The bytes that must be reserved before another record is taken."""
        end = min(self.taken + BODY_SIZE, self.total)
        return len(self.content) if end <= len(self.content) else min(max(2 * end, _ROOM), self.total)

    def make_room(self, size: int) -> None:
        """Reserves memory for `size` bytes in all."""
        self.content += bytes(size - len(self.content))

    def take_records(self, reader: RecordReader) -> None:
        """Takes the records that have come, as far as memory for them is reserved."""
        while min(self.taken + BODY_SIZE, self.total) <= len(self.content):
            size = reader.take(self.content, self.taken)
            self.taken += size
            if not size or self.taken == self.total:
                return


@dataclass(slots=True)
class Passing:
    """A message that is discarded: its length, and how much of it has passed."""

    total: int
    taken: int
    _content: bytearray = field(default_factory=lambda: bytearray(1 + BODY_SIZE), repr=False)

    def take_records(self, reader: RecordReader) -> None:
        """Counts the bytes of the records that have come, and drops them."""
        while self.taken < self.total and (size := reader.take(self._content, 1)):
            self.taken += size


async def make_room(message: Arriving, stopwatch: Stopwatch, room: Room) -> None:
    """Reserves memory for another record once `room` allows it; cancelled, it has read nothing."""
    began, size = trio.current_time(), message.wanted
    await room(message.taken, size)
    stopwatch.excuse(trio.current_time() - began)
    message.make_room(size)
