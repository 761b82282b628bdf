"""The clients that wait for a round, and after which: those that ask to take part in the next one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from parties.concurrency import RecurringEvent


class Askers:
    """Who waits at one server.

    A client counts as long as it waits: one that has left would be drawn in vain.

    Attributes:
        changed: occurs whenever one more waits, or one has left.
    """

    def __init__(self) -> None:
        self.changed = RecurringEvent()
        self._waiting: Counter[tuple[str, int]] = Counter()

    @contextmanager
    def asking(self, client: str, after: int) -> Iterator[None]:
        """Let a client wait for a round with a number above `after`, for as long as the context lasts."""
        self._waiting[client, after] += 1
        self.changed.set()
        try:
            yield
        finally:
            self._waiting[client, after] -= 1
            if not self._waiting[client, after]:
                del self._waiting[client, after]
            self.changed.set()

    def of(self, number: int) -> frozenset[str]:
        """Who waits for the round of that number."""
        return frozenset(client for client, after in self._waiting if after < number)
