"""The memory that a server lends to messages that come and go: never more than there is, and to nobody for words alone.

A message declares how long it is; room is lent as its bytes come. So a client that declares much and sends little holds
little. Rules:

- A client has room for one message at a time, whatever it asks for on how many connections.
- Whoever comes first begins first. A message that has begun goes on before one that has not.
- Room is lent only while all that have begun can still be finished, one after the other, with what is free and what
  the finished give back (the banker's rule). So messages that have begun never wait for each other for ever.
- While somebody has waited for room for a while, the message that is furthest from its end, as fast as it moves, gives
  its room up: one at a time, after a grace, and never one that is nearly there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError

__all__ = ["Budget", "Loan", "Moved", "unmoved"]

Moved: TypeAlias = Callable[[int, int], None]
"""Hears each time room is taken or given back: bytes in use, bytes in all."""

GRACE = 5.0
"""Seconds for which a message is not yet judged."""

PRESSURE = 2.0
"""Seconds that somebody waits for room before the slowest message gives its own up, and before the next one does."""

NEARLY_THERE = 10.0
"""Seconds to its end, as fast as it moves, for which a message may keep its room whoever waits."""


def unmoved(used: int, limit: int) -> None:
    """Hears nothing."""


@dataclass(slots=True, eq=False)
class Loan:
    """The room of one message.

    Attributes:
        client: whose message it is.
        total: the bytes that it needs in the end.
        length: the bytes that have to move.
        held: the bytes that are lent.
        moved: how many bytes have moved; the message is judged by them.
        moves: whether it depends on its client now how fast it gets on.
        scope: cancelled when the message gives its room up.
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
    seconds: float = 0.0
    since: float = 0.0

    def note(self, moved: int) -> None:
        """So many bytes of the message have moved."""
        self.moved = moved

    @contextmanager
    def moving(self) -> Iterator[None]:
        """In this block the message moves as fast as its client lets it; ends early when it gives its room up."""
        with self.scope:
            self._go()
            try:
                yield
            finally:
                self._stop()

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """In this block the message does not move, and its client cannot help it."""
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

    def time_left(self) -> float:
        """The seconds to its end, as fast as it has moved so far; none before it can be judged."""
        seconds = self.seconds + (trio.current_time() - self.since if self.moves else 0)
        if not self.moves or seconds < GRACE:
            return 0.0
        return seconds * max(0, self.length - self.moved) / max(1, self.moved)


class Budget:
    """So many bytes, lent to clients' messages.

    Attributes:
        limit: bytes in all.
    """

    def __init__(self, limit: int, moved: Moved = unmoved) -> None:
        self.limit = limit
        self._moved = moved
        self._loans: dict[str, Loan] = {}
        self._waiting: list[Loan] = []
        self._turned = trio.Event()
        self._pressed_at = float("-inf")

    @property
    def used(self) -> int:
        """Bytes that are lent."""
        return sum(loan.held for loan in self._loans.values())

    @asynccontextmanager
    async def loan(self, client: str, total: int) -> AsyncIterator[Loan]:
        """A client's loan for one message, once it has none for another; nothing is lent yet.

        Args:
            client: whose message it is.
            total: the bytes that it needs in the end.

        Raises:
            MisuseError: there is never so much.
        """
        if total > self.limit:
            raise MisuseError(f"{total:,} bytes wanted of a budget of {self.limit:,}; give the server more memory")
        await trio.lowlevel.checkpoint()
        while client in self._loans:
            await self._turned.wait()
        loan = self._loans[client] = Loan(client, total, length=total)
        try:
            yield loan
        finally:
            del self._loans[client]
            turned, self._turned = self._turned, trio.Event()
            turned.set()
            if loan.held:
                self._moved(self.used, self.limit)
            self._grant()

    async def lend(self, loan: Loan, size: int) -> None:
        """Wait until a loan may be so large; cancelled, it is as large as before.

        A loan that is to give its room up meanwhile has its scope cancelled.
        """
        if size <= loan.held:
            return
        loan.wants, loan.granted = size, trio.Event()
        self._waiting.append(loan)
        self._grant()
        try:
            with loan.held_up():
                while not loan.granted.is_set():
                    with trio.move_on_after(PRESSURE):
                        await loan.granted.wait()
                        break
                    self._press()
        finally:
            if loan in self._waiting:
                self._waiting.remove(loan)
                self._grant()  # it may have stood before others

    def _grant(self) -> None:
        """Lend what can be lent: to messages that have begun first, then in order, and nobody overtakes the first."""
        blocked = False
        for loan in sorted(self._waiting, key=lambda waiting: not waiting.held):
            if not loan.held and blocked:
                return
            if self._is_safe(loan):
                self._waiting.remove(loan)
                loan.held = loan.wants
                loan.granted.set()
                self._moved(self.used, self.limit)
            else:
                blocked = True

    def _is_safe(self, asking: Loan) -> bool:
        """Whether all that have begun can be finished, one after the other, if this one gets what it wants."""
        free = self.limit - self.used - (asking.wants - asking.held)
        if free < 0:
            return False
        held = {loan: loan.wants if loan is asking else loan.held for loan in self._loans.values()}
        begun = sorted((loan.total - size, size) for loan, size in held.items() if size)
        for missing, size in begun:
            if missing > free:
                return False
            free += size
        return True

    def _press(self) -> None:
        """Have the message that is furthest from its end give its room up."""
        now = trio.current_time()
        slowest = max(self._loans.values(), key=Loan.time_left)
        if slowest.time_left() > NEARLY_THERE and now - self._pressed_at >= PRESSURE:
            self._pressed_at = now
            slowest.scope.cancel()
