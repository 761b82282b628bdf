"""Which door forwards which part to the other server.

Rules: a part is ordered of one door at a time: of the one that has just put it and may still have it in memory, or else
of the one with the fewest orders. What a door gives back, or had when it was lost, is ordered of another one. An order
ends when a door has carried it out, or when its round is over. Nothing of this is stored: after a restart, and whenever
the servers meet, a round orders again what the other server may lack, and what is there already is not sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fsl_async.wire.door_messages import ForwardOrder
from parties.server.peer.forwards import Read, StoredPart
from parties.server.store_layout import RequestKey

__all__ = ["ForwardOrders"]

MOST_NOTED = 10_000
"""Parts of which it is remembered who has put them."""

MOST_OF_A_DOOR = 64
"""Orders that one door has at a time; further ones wait here, for whichever door is ready first."""


@dataclass(eq=False)
class _Door:
    """A connected door.

    Attributes:
        give: gives it an order.
        has: the orders that it has, by number.
    """

    give: Callable[[ForwardOrder], None]
    has: dict[int, StoredPart] = field(default_factory=dict)


class ForwardOrders:
    """Orders of parts to be forwarded: a `ForwardWay`.

    orders = ForwardOrders()
    orders.add("door-1", give)
    orders.forward(stored, read)
    orders.forwarded("door-1", 1)
    """

    def __init__(self) -> None:
        self._doors: dict[str, _Door] = {}
        self._waiting: deque[StoredPart] = deque()
        self._known: set[tuple[bytes, RequestKey]] = set()
        self._put_by: dict[bytes, str] = {}
        self._numbers = 0

    @property
    def waiting(self) -> int:
        """How many parts are to be forwarded, ordered or not."""
        return len(self._waiting) + sum(len(door.has) for door in self._doors.values())

    def of_door(self, name: str) -> int:
        """How many of them a door has."""
        return len(self._doors[name].has) if name in self._doors else 0

    def note(self, name: str, part: bytes) -> None:
        """A door has put a part, which is to be forwarded soon."""
        self._put_by[part] = name
        while len(self._put_by) > MOST_NOTED:
            del self._put_by[next(iter(self._put_by))]

    def forward(self, stored: StoredPart, read: Read) -> None:
        """See `ForwardWay.forward`: a door reads the part itself."""
        del read
        if (stored.round_id, stored.key) not in self._known:
            self._known.add((stored.round_id, stored.key))
            self._waiting.append(stored)
            self._order()

    def add(self, name: str, give: Callable[[ForwardOrder], None]) -> None:
        """A door is connected; one of that name before is gone."""
        self.remove(name)
        self._doors[name] = _Door(give)
        self._order()

    def remove(self, name: str) -> None:
        """A door is gone: what it had is ordered of others."""
        door = self._doors.pop(name, None)
        if door is not None:
            self._waiting.extendleft(reversed(door.has.values()))
            self._order()

    def forwarded(self, name: str, order: int) -> None:
        """A door has carried an order out."""
        self._end(self._take(name, order))
        self._order()

    def not_forwarded(self, name: str, order: int) -> None:
        """A door gives an order back."""
        stored = self._take(name, order)
        if stored is not None:
            self._put_by.pop(stored.part, None)
            self._waiting.append(stored)
        self._order()

    def _end(self, stored: StoredPart | None) -> None:
        if stored is not None:
            self._known.discard((stored.round_id, stored.key))
            self._put_by.pop(stored.part, None)

    def _take(self, name: str, order: int) -> StoredPart | None:
        """Take an order from a door; none if the door does not have it, as from before its connection was lost."""
        return self._doors[name].has.pop(order, None) if name in self._doors else None

    def _order(self) -> None:
        """Give what waits to doors that have room for it."""
        while self._waiting and (ready := [door for door in self._doors.values() if len(door.has) < MOST_OF_A_DOOR]):
            stored = self._waiting.popleft()
            door = self._doors.get(self._put_by.get(stored.part, ""))
            if door not in ready:
                door = min(ready, key=lambda one: len(one.has))
            if stored.over.is_set():
                self._end(stored)
            else:
                self._numbers += 1
                door.has[self._numbers] = stored
                door.give(_order(self._numbers, stored))


def _order(number: int, stored: StoredPart) -> ForwardOrder:
    key = stored.key
    return ForwardOrder(
        order=number,
        round_id=stored.round_id,
        number=stored.number,
        client=key.client,
        purpose=key.purpose,
        query=key.query,
        part=stored.part,
    )
