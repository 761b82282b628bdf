"""A message on its way in: how much of it has come, and the room that it has.

Room is not taken on the peer's word: it grows with what comes, and whoever lends it may make the message wait.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from transport.pace import Stopwatch
from transport.records import RECORD_SIZE

__all__ = ["Arriving", "Passing", "Progress", "Quiet", "Room", "endless", "make_room", "unseen"]

_ROOM = 2**19
"""Bytes that a message gets with its first ones, if it announced as many."""

Progress: TypeAlias = Callable[[int], None]
"""Hears how many bytes of a message have moved."""

Room: TypeAlias = Callable[[int, int], Awaitable[None]]
"""Waits for room for a message: how many bytes of it have come, for how many there must be room now."""


def unseen(moved: int) -> None:
    """Hears nothing."""


async def endless(taken: int, size: int) -> None:
    """There is always room."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """No message has been announced."""


@dataclass(slots=True)
class Arriving:
    """A message under way: its length, and what has come of it.

    Room is not taken on the peer's word: none before something comes, then `_ROOM` bytes, from there on at most twice
    as much as has come. (A bytearray left to itself takes an eighth more each time, and copies all that it has.)
    """

    total: int
    taken: int = 0
    content: bytearray = field(default_factory=bytearray)

    @property
    def wanted(self) -> int:
        """The bytes that there must be room for before another record is taken."""
        end = min(self.taken + RECORD_SIZE, self.total)
        return len(self.content) if end <= len(self.content) else min(max(2 * end, _ROOM), self.total)

    def make_room(self, size: int) -> None:
        """Has room for so many bytes."""
        self.content += bytes(size - len(self.content))

    def take(self, data: memoryview) -> None:
        """Keeps the next bytes, for which there is room."""
        self.content[self.taken : self.taken + len(data)] = data
        self.taken += len(data)


@dataclass(slots=True)
class Passing:
    """A message that nobody wants: its length, and how much of it has gone by."""

    total: int
    taken: int = 0

    def take(self, data: memoryview) -> None:
        """Lets the next bytes go by."""
        self.taken += len(data)


async def make_room(message: Arriving, stopwatch: Stopwatch, room: Room) -> None:
    """Makes room for another record, once that is allowed; cancelled, nothing has been taken."""
    began, size = trio.current_time(), message.wanted
    await room(message.taken, size)
    stopwatch.excuse(trio.current_time() - began)
    message.make_room(size)
