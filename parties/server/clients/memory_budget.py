"""The memory that a server lends to messages that come and go: a fixed amount, lent only as bytes really move.

A message declares how long it is; room is lent as its bytes come. So a client that declares much and sends little holds
little. Rules:

- A client has room for one message at a time, whatever it asks for on however many connections.
- Messages begin in the order in which they come; one that has begun is served before one that has not.
- Room is lent only while all messages that have begun can still be finished, one after the other, with the free room
  and what finished messages give back (the banker's algorithm). So messages never wait for each other for ever.
- While a message has waited for room for a while, the message that needs the longest time to its end, at its present
  speed, gives up its room: one at a time, after a grace. One that is nearly done is spared for a limited time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError

GRACE = 5.0
"""Seconds before the speed of a message is judged."""

PRESSURE = 2.0
"""Seconds that a message waits for room before the slowest one gives up its own, and before the next one does."""

NEARLY_DONE = 10.0
"""A message that needs at most so many seconds to its end, at its present speed, keeps its room."""

SPARED = 2 * NEARLY_DONE
"""Seconds for which a message that is nearly done is spared."""

JUDGED_AGAIN = 0.2
"""Seconds between two looks at all messages, because thousands may wait, and each of them asks."""


@dataclass(slots=True, eq=False)
class Reservation:
    """The room of one message.

    Attributes:
        client: whose message it is.
        total: the bytes that it needs in the end.
        length: the bytes that have to move.
        held: the bytes that are lent.
        moved: how many bytes have moved; the message is judged by them.
        moves: whether its speed depends on its client now.
        scope: cancelled when the message gives up its room.
        ended: set when it has ended.
    """

    client: str
    total: int
    length: int
    held: int = 0
    moved: int = 0
    moves: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    wants: int = 0
    granted: trio.Event = field(default_factory=trio.Event)
    ended: trio.Event = field(default_factory=trio.Event)
    seconds: float = 0.0
    since: float = 0.0
    spared: float = inf

    def note(self, moved: int) -> None:
        """Note that so many bytes of the message have moved."""
        self.moved = moved

    @contextmanager
    def moving(self) -> Iterator[None]:
        """In this context the message moves as fast as its client lets it; it is left early if the room is given up."""
        with self.scope:
            self._go()
            try:
                yield
            finally:
                self._stop()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """In this context the message does not move, and that is not its client's doing."""
        moves = self.moves
        self._stop()
        try:
            yield
        finally:
            if moves:
                self._go()

    def _go(self) -> None:
        self.moves, self.since = True, trio.current_time()

    def _stop(self) -> None:
        if self.moves:
            self.moves, self.seconds = False, self.seconds + trio.current_time() - self.since

    def judged(self, now: float) -> float:
        """The seconds to its end, at its speed so far; 0 before it can be judged.

        For a message that was nearly done and has not ended in time it is infinity: it was fast only to be spared.
        """
        seconds = self.seconds + now - self.since
        if not self.moves or seconds < GRACE:
            return 0.0
        left = seconds * max(0, self.length - self.moved) / max(1, self.moved)
        if left <= NEARLY_DONE:
            self.spared = min(self.spared, seconds + SPARED)
        return left if seconds < self.spared else inf


Ranked: TypeAlias = tuple[int, int]
"""Of a message that has begun: the bytes that it lacks, and those that it gives back at its end."""


def _ranked(reservation: Reservation) -> Ranked:
    return reservation.total - reservation.held, reservation.held


class Budget:
    """So many bytes, lent to clients' messages.

    Args:
        limit: bytes in all.
        moved: called each time room is lent or given back.

    Attributes:
        used: bytes that are lent.
    """

    def __init__(self, limit: int, moved: Callable[[], None] = lambda: None) -> None:
        self.limit = limit
        self._moved = moved
        self.used = 0
        self._reservations: dict[str, Reservation] = {}
        self._begun: set[Reservation] = set()
        self._growing: dict[Reservation, None] = {}
        self._coming: dict[Reservation, None] = {}
        self._order: list[Ranked] | None = None
        self._judges_at = -inf

    @asynccontextmanager
    async def reservation(self, client: str, total: int) -> AsyncIterator[Reservation]:
        """A client's reservation for one message, once it has none for another; nothing is reserved yet.

        Args:
            client: whose message it is.
            total: the bytes that it needs in the end.

        Raises:
            MisuseError: the budget never has so much.
        """
        if total > self.limit:
            raise MisuseError(f"{total:,} bytes wanted of a budget of {self.limit:,}; give the server more memory")
        await trio.lowlevel.checkpoint()
        while client in self._reservations:
            await self._reservations[client].ended.wait()
        reservation = self._reservations[client] = Reservation(client, total, length=total)
        try:
            yield reservation
        finally:
            del self._reservations[client]
            reservation.ended.set()
            if reservation.held:
                self._begun.remove(reservation)
                self.used -= reservation.held
                self._order = None
                self._moved()
            self._grant()

    async def reserve(self, reservation: Reservation, size: int) -> None:
        """Wait until a reservation may be so large; cancelled, it is as large as before.

        If it has to give up its room meanwhile, its scope is cancelled.
        """
        if size <= reservation.held:
            return
        reservation.wants, reservation.granted = size, trio.Event()
        waiting = self._growing if reservation.held else self._coming
        waiting[reservation] = None
        self._grant()
        try:
            with reservation.held_up():
                while not reservation.granted.is_set():
                    with trio.move_on_after(PRESSURE):
                        await reservation.granted.wait()
                        break
                    self._press()
        finally:
            if reservation in waiting:
                del waiting[reservation]
                self._grant()  # others may have waited behind it

    def _grant(self) -> None:
        """Lend what can be lent: first to messages that have begun, then in order; none overtakes the first of them."""
        refused = [
            reservation for reservation in list(self._growing) if not self._is_granted(reservation, self._growing)
        ]
        while self._coming and not refused:
            first = next(iter(self._coming))
            if not self._is_granted(first, self._coming):
                return

    def _is_granted(self, reservation: Reservation, waiting: dict[Reservation, None]) -> bool:
        """Grant a reservation that waits what it wants, if that is safe; whether it was."""
        if not self._is_safe(reservation):
            return False
        del waiting[reservation]
        self._begun.add(reservation)
        self.used += reservation.wants - reservation.held
        reservation.held = reservation.wants
        self._order = None
        reservation.granted.set()
        self._moved()
        return True

    def _is_safe(self, asking: Reservation) -> bool:
        """Whether all that have begun can be finished, one after the other, if this one gets what it wants.

        All could be before: so where there is enough for this one to its end, they still can.
        """
        free = self.limit - self.used - (asking.wants - asking.held)
        if free < 0 or asking.total - asking.wants <= free:
            return free >= 0
        if self._order is None:
            self._order = sorted(map(_ranked, self._begun))
        others = list(self._order)
        if asking.held:
            del others[bisect_left(others, _ranked(asking))]  # one that is equal will do
        insort(others, (asking.total - asking.wants, asking.wants))
        for missing, size in others:
            if missing > free:
                return False
            free += size
        return True

    def _press(self) -> None:
        """Have the message that needs the longest time to its end give up its room."""
        now = trio.current_time()
        if now < self._judges_at or not self._begun:
            return
        left, slowest = max(((reservation.judged(now), reservation) for reservation in self._begun), key=itemgetter(0))
        self._judges_at = now + (PRESSURE if left > NEARLY_DONE else JUDGED_AGAIN)
        if left > NEARLY_DONE:
            slowest.scope.cancel()
