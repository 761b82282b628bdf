"""The memory that a server lends to messages that come and go: never more than there is, and to nobody for words alone.

A message declares how long it is; room is lent as its bytes come. So a client that declares much and sends little holds
little. Rules:

- A client has room for one message at a time, whatever it asks for on how many connections.
- Whoever comes first begins first. A message that has begun goes on before one that has not.
- Room is lent only while all that have begun can still be finished, one after the other, with what is free and what
  the finished give back (the banker's rule). So messages that have begun never wait for each other for ever.
- While somebody has waited for room for a while, the message that is furthest from its end, as fast as it moves, gives
  its room up: one at a time, after a grace. One that is nearly there is spared, for twice the time that this takes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
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

SPARED = 2 * NEARLY_THERE
"""Seconds after which a message that was nearly there should have come to its end."""

JUDGED_AGAIN = 0.2
"""Seconds between two looks at all messages: thousands may wait, and each of them asks."""


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
        ended: set when it has come to its end.
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

    def judged(self, now: float) -> float:
        """The seconds to its end, as fast as it has moved so far; none before it can be judged.

        A message that was nearly there and is not through in time has no end in sight: it came quickly to be spared.
        """
        seconds = self.seconds + now - self.since
        if not self.moves or seconds < GRACE:
            return 0.0
        left = seconds * max(0, self.length - self.moved) / max(1, self.moved)
        if left <= NEARLY_THERE:
            self.spared = min(self.spared, seconds + SPARED)
        return left if seconds < self.spared else inf


class Budget:
    """So many bytes, lent to clients' messages.

    Attributes:
        limit: bytes in all.
        used: bytes that are lent.
    """

    def __init__(self, limit: int, moved: Moved = unmoved) -> None:
        self.limit = limit
        self._moved = moved
        self.used = 0
        self._loans: dict[str, Loan] = {}
        self._begun: set[Loan] = set()
        self._waiting: list[Loan] = []
        self._judges_at = -inf

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
            await self._loans[client].ended.wait()
        loan = self._loans[client] = Loan(client, total, length=total)
        try:
            yield loan
        finally:
            del self._loans[client]
            loan.ended.set()
            if loan.held:
                self._begun.remove(loan)
                self.used -= loan.held
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
                self._begun.add(loan)
                self.used += loan.wants - loan.held
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
        others = [(loan.total - loan.held, loan.held) for loan in self._begun if loan is not asking]
        for missing, size in sorted([*others, (asking.total - asking.wants, asking.wants)]):
            if missing > free:
                return False
            free += size
        return True

    def _press(self) -> None:
        """Have the message that is furthest from its end give its room up."""
        now = trio.current_time()
        if now < self._judges_at or not self._begun:
            return
        left, slowest = max(((loan.judged(now), loan) for loan in self._begun), key=itemgetter(0))
        self._judges_at = now + (PRESSURE if left > NEARLY_THERE else JUDGED_AGAIN)
        if left > NEARLY_THERE:
            slowest.scope.cancel()
