"""What the other server offers to forward to one door, as the core decides it: parts that may come, and have not.

Most is decided as soon as it is asked, in the order in which a door asks; what has to be said to the server's own task
first has a task of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import trio

from fsl_async.errors import PeerViolationError
from fsl_async.wire.door_messages import Kept, Later, Offer, Taken, Unwanted, Wanted
from fsl_async.wire.messages import Forward
from parties.server.doors.desk import CoreDesk, DoorViolationError
from parties.server.doors.visits import Visit
from parties.server.peer.forward_keeper import Verdict

__all__ = ["OfferedParts"]

MOST_OFFERS = 4_096
"""Parts that the other server may have offered at one door, and that have not come."""


@dataclass(eq=False, slots=True)
class _Offered:
    """A part that is offered, and has not come.

    Attributes:
        visit: in which it was offered.
        forward: whose it is, and for what.
        offer: what was said of it.
        is_wanted: whether the door has been told that it may come.
    """

    visit: Visit
    forward: Forward
    offer: Offer
    is_wanted: bool = False


class OfferedParts:
    """The parts that are offered at one door.

    Args:
        desk: decides.
        door: the door, for messages.
        post: says something to the door.

    Attributes:
        stored_bytes: of all parts that have come.
    """

    def __init__(self, desk: CoreDesk, door: str, post: Callable[[Wanted | Unwanted | Later | Taken], object]) -> None:
        self._desk = desk
        self._door = door
        self._post = post
        self._offers: dict[int, _Offered] = {}
        self.stored_bytes = 0

    def forget(self, visit: Visit) -> None:
        """Forget what was offered in a visit, which is over."""
        for call in [call for call, offered in self._offers.items() if offered.visit is visit]:
            del self._offers[call]

    def offer(self, visit: Visit | None, offer: Offer, nursery: trio.Nursery) -> None:
        """Take an offer, made in that visit.

        Raises:
            DoorViolationError: no door makes it.
        """
        if visit is None or not visit.name or visit.client is not None:
            raise DoorViolationError(self._door, f"offers for visit {offer.visit}, which is no server's")
        if len(self._offers) >= MOST_OFFERS or offer.call in self._offers:
            raise DoorViolationError(self._door, f"has more than {MOST_OFFERS:,} parts that have not come")
        forward = Forward(round_id=offer.round_id, client=offer.client, purpose=offer.purpose, query=offer.query)
        offered = self._offers[offer.call] = _Offered(visit, forward, offer)
        verdict = self._desk.offers.offered_offhand(forward, offer.part, offer.size)
        if verdict is None:
            nursery.start_soon(self._judge, offered)
        else:
            self._say_verdict(offered, verdict)

    async def _judge(self, offered: _Offered) -> None:
        try:
            verdict = await self._desk.offers.offered(offered.forward, offered.offer.part, offered.offer.size)
        except PeerViolationError:  # the server's own task ends for it
            verdict = Verdict.UNWANTED
        if self._offers.get(offered.offer.call) is offered:  # else its visit is over, and nobody waits for this
            self._say_verdict(offered, verdict)

    def _say_verdict(self, offered: _Offered, verdict: Verdict) -> None:
        call = offered.offer.call
        if verdict is Verdict.WANTED:
            offered.is_wanted = True
        else:
            del self._offers[call]
        match verdict:
            case Verdict.WANTED:
                self._post(Wanted(call))
            case Verdict.UNWANTED:
                self._post(Unwanted(call))
            case Verdict.LATER:
                self._post(Later(call))
            case _:
                assert_never(verdict)

    def keep(self, kept: Kept, nursery: trio.Nursery) -> None:
        """Take note of a part that has come.

        Raises:
            DoorViolationError: it was not wanted.
        """
        offered = self._offers.get(kept.call)
        if offered is None or not offered.is_wanted:
            raise DoorViolationError(self._door, f"keeps a part under call {kept.call}, which was not wanted")
        del self._offers[kept.call]
        forward, offer = offered.forward, offered.offer
        if self._desk.offers.kept_offhand(forward, offer.part, kept.part, kept.tree, offer.size):
            self._say_kept(kept, offer, is_on=True)
        else:
            nursery.start_soon(self._note_kept, kept, forward, offer)

    async def _note_kept(self, kept: Kept, forward: Forward, offer: Offer) -> None:
        try:
            is_on = await self._desk.offers.kept(forward, offer.part, kept.part, kept.tree, offer.size)
        except PeerViolationError:  # as above
            is_on = False
        self._say_kept(kept, offer, is_on=is_on)

    def _say_kept(self, kept: Kept, offer: Offer, *, is_on: bool) -> None:
        self.stored_bytes += offer.size
        self._post(Taken(kept.call) if is_on else Unwanted(kept.call))
