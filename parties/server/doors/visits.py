"""The connections of clients at a server's doors, as the core counts them: how many each key has over all doors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import trio

from fsl_async.wire.door_messages import Deposited, Withdraw
from parties.concurrency import RecurringEvent
from parties.identity.keys import PublicIdentity

__all__ = ["Call", "Places", "Turns", "Visit"]


@dataclass(eq=False, slots=True)
class Call:
    """A call of a door's that is under way.

    Attributes:
        number: its number.
        visit: on whose behalf.
        scope: cancelled if it is withdrawn, or the visit ends.
        is_granted: whether its bulk may come.
        said: what the door has said of that bulk.
        has_said: set once it has.
    """

    number: int
    visit: Visit
    scope: trio.CancelScope
    is_granted: bool = False
    said: Deposited | Withdraw | None = None
    has_said: trio.Event = field(default_factory=trio.Event)


@dataclass(eq=False, slots=True)
class Visit:
    """A connection at a door.

    Attributes:
        number: its number at that door.
        key: whose it is, by its channel key.
        name: likewise, by name; empty until it is let in.
        client: the client; None while it is not let in, and of the other server.
        after: of one that waits to take part: in a round with a number above this; None of others.
        call: its call that is under way.
    """

    number: int
    key: bytes
    name: str = ""
    client: PublicIdentity | None = None
    after: int | None = None
    call: Call | None = None


class Places:
    """How many visits each key has, over all doors of a server."""

    def __init__(self) -> None:
        self._taken: Counter[bytes] = Counter()

    def take(self, key: bytes, most: int) -> bool:
        """Take a place for one more visit of a key, unless it has so many already."""
        if self._taken[key] >= most:
            return False
        self._taken[key] += 1
        return True

    def give_back(self, key: bytes) -> None:
        """Give a place back."""
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]


class Turns:
    """Lets one message of a client be under way at a time, over all doors and connections."""

    def __init__(self) -> None:
        self._ended: dict[str, RecurringEvent] = {}

    def take(self, client: str) -> bool:
        """Begin a message of this client, unless another one is under way; returns whether it has begun."""
        if client in self._ended:
            return False
        self._ended[client] = RecurringEvent()
        return True

    async def wait(self, client: str) -> None:
        """Wait until no other message of this client is under way, and begin this one."""
        while not self.take(client):
            await self._ended[client].wait()

    def end(self, client: str) -> None:
        """The message under way has come to its end."""
        self._ended.pop(client).set()
