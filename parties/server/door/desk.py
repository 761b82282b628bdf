"""A door's part of taking what the other server forwards: it examines and puts parts, and its core decides."""

from __future__ import annotations

from functools import partial

from fsl_async.digests import same
from fsl_async.errors import PeerViolationError
from fsl_async.task import Task
from fsl_async.wire.door_messages import Kept, Later, Offer, Unwanted, Wanted
from fsl_async.wire.forward_messages import OfferPart
from fsl_async.wire.messages import Forward
from parties.compute import ComputeLane
from parties.server.door.visit_calls import DoorKnowledge
from parties.server.peer.forward_keeper import Verdict
from parties.server.peer.forwarding import layout_of, looked_through
from parties.server.peer.offers import MALFORMED
from parties.server.store_layout import RequestKey, part_name, round_prefix
from parties.storage.blobs.blobs import Blobs

__all__ = ["DoorDesk"]


class DoorDesk:
    """Keeps parts that come over one link.

    Args:
        known: what all visitors of the door share.
        visit: the link's visit.
        peer: the other server's name.
        blobs: where parts are put.
        lane: where they are looked through.
    """

    def __init__(self, known: DoorKnowledge, visit: int, peer: str, blobs: Blobs, lane: ComputeLane) -> None:
        self._known = known
        self._visit = visit
        self._peer = peer
        self._blobs = blobs
        self._lane = lane
        self._calls: dict[int, int] = {}

    async def offered(self, offer: OfferPart) -> Verdict:
        """See `PartDesk.offered`."""
        call = self._known.core.number()
        asked = Offer(
            call=call,
            visit=self._visit,
            round_id=offer.round_id,
            client=offer.client,
            purpose=offer.purpose,
            query=offer.query,
            part=offer.part,
            size=offer.size,
        )
        answer = (await self._known.core.call(call, asked)).message
        match answer:
            case Wanted():
                self._calls[offer.number] = call
                return Verdict.WANTED
            case Unwanted():
                return Verdict.UNWANTED
            case Later():
                return Verdict.LATER
            case _:
                raise PeerViolationError(self._peer, "offers what no server offers")

    async def keep(self, offer: OfferPart, part: memoryview) -> None:
        """See `PartDesk.keep`.

        A part that is on loan here need not outlive a power failure: the other server has it, and forwards it again.
        """
        call = self._calls.pop(offer.number)
        config = self._known.rounds.find(offer.round_id)
        message = Forward(round_id=offer.round_id, client=offer.client, purpose=offer.purpose, query=offer.query)
        layout = layout_of(config, message, len(part))
        found, wrong = await self._lane.run(partial(looked_through, config.shape, layout, part))
        is_offered = same(found.part, offer.part)
        if is_offered and not wrong:
            key = RequestKey(offer.client, offer.purpose, offer.query)
            durable = not is_on_loan(config.task, key)
            await self._blobs.put(part_name(round_prefix(config.number), key, found.part), part, durable=durable)
        await self._tell(call, MALFORMED if is_offered and wrong else found.part, found.tree)
        if not is_offered:
            raise PeerViolationError(self._peer, f"forwards a part of {offer.client!r} that is not the one it offered")

    async def _tell(self, call: int, part: bytes, tree: bytes) -> None:
        await self._known.core.call(call, Kept(call=call, part=part, tree=tree))


def is_on_loan(task: Task, key: RequestKey) -> bool:
    """Whether only a part's carrier has to keep it durably: no session and no later request refers to it."""
    return key.purpose == "submit" and task.selection != "fixed"
