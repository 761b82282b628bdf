"""The memory that a server lends to messages still to come: what is declared is never more than it has.

Rules: room is taken before a message is read and given back when its bytes are done with; first come, first served,
and nobody overtakes, so that a large message gets its turn; one client holds room for one message at a time, whatever
it asks for on how many connections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError

__all__ = ["Budget", "Moved", "unmoved"]

Moved: TypeAlias = Callable[[int, int], None]
"""Hears each time room is taken or given back: bytes in use, bytes in all."""


def unmoved(used: int, limit: int) -> None:
    """Hears nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """A client that wants room."""

    client: str
    size: int
    granted: trio.Event = field(default_factory=trio.Event)


class Budget:
    """So many bytes, lent to clients.

    Attributes:
        limit: bytes in all.
    """

    def __init__(self, limit: int, moved: Moved = unmoved) -> None:
        self.limit = limit
        self._moved = moved
        self._lent: dict[str, int] = {}
        self._queue: deque[_Waiting] = deque()

    @property
    def used(self) -> int:
        """Bytes that are lent."""
        return sum(self._lent.values())

    async def take(self, client: str, size: int) -> None:
        """Wait for room and take it, until `give_back`; cancelled, nothing has been taken.

        Raises:
            MisuseError: there is never so much.
        """
        if size > self.limit:
            raise MisuseError(f"{size:,} bytes wanted of a budget of {self.limit:,}; give the server more memory")
        await trio.lowlevel.checkpoint()
        waiting = _Waiting(client, size)
        self._queue.append(waiting)
        self._grant()
        if waiting.granted.is_set():
            return
        try:
            await waiting.granted.wait()
        except BaseException:
            self._queue.remove(waiting)
            self._grant()  # it may have stood before others
            raise

    def give_back(self, client: str) -> None:
        """Give back what a client took."""
        del self._lent[client]
        self._moved(self.used, self.limit)
        self._grant()

    def _grant(self) -> None:
        for waiting in tuple(self._queue):
            if waiting.client in self._lent:
                continue
            if self.used + waiting.size > self.limit:
                return
            self._queue.remove(waiting)
            self._lent[waiting.client] = waiting.size
            self._moved(self.used, self.limit)
            waiting.granted.set()
