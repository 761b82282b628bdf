"""A message on its way in: how much of it has come, and the memory that is reserved for it.

Memory is not reserved because a peer announces a length: it grows with what has come, and a caller's `Room` may make
the message wait before it grows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from transport.pace import Stopwatch
from transport.records import RECORD_SIZE

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

    No memory is reserved before something comes; then `_ROOM` bytes, and from there on at most twice as much as has
    come. (A bytearray that grows by itself takes an eighth more each time, and copies all that it has.)
    """

    total: int
    taken: int = 0
    content: bytearray = field(default_factory=bytearray)

    @property
    def wanted(self) -> int:
        """The bytes that must be reserved before another record is taken."""
        end = min(self.taken + RECORD_SIZE, self.total)
        return len(self.content) if end <= len(self.content) else min(max(2 * end, _ROOM), self.total)

    def make_room(self, size: int) -> None:
        """Reserves memory for `size` bytes in all."""
        self.content += bytes(size - len(self.content))

    def take(self, data: memoryview) -> None:
        """Keeps the next bytes; memory for them is reserved."""
        self.content[self.taken : self.taken + len(data)] = data
        self.taken += len(data)


@dataclass(slots=True)
class Passing:
    """A message that is discarded: its length, and how much of it has passed."""

    total: int
    taken: int = 0

    def take(self, data: memoryview) -> None:
        """Counts the next bytes, and drops them."""
        self.taken += len(data)


async def make_room(message: Arriving, stopwatch: Stopwatch, room: Room) -> None:
    """Reserves memory for another record once `room` allows it; cancelled, it has read nothing."""
    began, size = trio.current_time(), message.wanted
    await room(message.taken, size)
    stopwatch.excuse(trio.current_time() - began)
    message.make_room(size)
