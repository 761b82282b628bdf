"""What becomes of the parts that the other server offers over forwarding links; decided where the rounds are.

The same is decided as of parts that come over the link between the servers (see `parties.server.peer.forwarding`), but
before anything of them has come. An offer for a round that is not known yet comes again later: links of their own bring
no order with them.
"""

from __future__ import annotations

from functools import partial
from typing import NoReturn

from fsl_async.digests import same
from fsl_async.errors import PeerViolationError
from fsl_async.wire.forward_messages import OfferPart, is_forwarding
from fsl_async.wire.messages import Forward
from parties.server.actor import Actor
from parties.server.inbox import Violated
from parties.server.peer.forward_keeper import Verdict
from parties.server.peer.forwarding import Forwarded, has_place, layout_of, looked_through, objection
from parties.server.round.run import RoundRun
from parties.server.store_layout import RequestKey

__all__ = ["MALFORMED", "Offers", "OwnDesk"]

MALFORMED = b""
"""In place of a part's digest: bits of it are set that nothing reads, so it was not put."""


class Offers:
    """Decides about parts that the other server offers, and notes those that have come.

    Args:
        actor: has the rounds.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def are_made(self, payload: bytes) -> bool:
        """Whether the other server, which shows this payload in its handshake, forwards for this task."""
        return is_forwarding(payload, self._actor.setup.task.digest())

    def offered_offhand(self, message: Forward, part: bytes, size: int) -> Verdict | None:
        """The answer of `offered` where nothing has to be said about it; else None."""
        run = self._run_of(message)
        if isinstance(run, Verdict):
            return run
        return None if objection(run, message, size) is not None else self._verdict(run, message, part)

    async def offered(self, message: Forward, part: bytes, size: int) -> Verdict:
        """Decide about a part of which nothing has come.

        Args:
            message: whose it is, and for what.
            part: the digest under which it is offered.
            size: its bytes.

        Raises:
            PeerViolationError: no server that keeps the protocol offers it.
        """
        run = self._run_of(message)
        if isinstance(run, Verdict):
            return run
        wrong = objection(run, message, size)
        if wrong is not None:
            await self._violated(wrong)
        verdict = self._verdict(run, message, part)
        if verdict is not None:
            return verdict
        key = RequestKey(message.client, message.purpose, message.query)
        if run.requests.awaits_another(key, part):
            await self._violated(f"offers two parts for {message.client!r}")
        if not run.requests.has_public(key, part):  # it contradicts what the client has said, or the peer has
            await self._actor.post_from_peer(Forwarded(message, size, part))
        return Verdict.UNWANTED

    def _run_of(self, message: Forward) -> RoundRun | Verdict:
        """The round of a part, if it is on and the peer is heard; else what is said of the part."""
        actor = self._actor
        run = actor.rounds.find(message.round_id)
        if run is None or not actor.meeting.listens:
            return Verdict.UNWANTED if actor.rounds.is_past(message.round_id) else Verdict.LATER
        return run

    def _verdict(self, run: RoundRun, message: Forward, part: bytes) -> Verdict | None:
        """What is said of a part that may be offered; None where more than that has to be done about it."""
        if not has_place(run, message.client, known=message.client in self._actor.records.enrolment):
            return Verdict.UNWANTED
        key = RequestKey(message.client, message.purpose, message.query)
        return Verdict.WANTED if run.requests.wants(key, part) or run.records.awaits(key, part) else None

    async def kept(self, message: Forward, part: bytes, found: bytes, tree: bytes, size: int) -> bool:
        """Note that a part has come that was wanted.

        Args:
            message: whose it is, and for what.
            part: the digest under which it was offered.
            found: its digest as it came; `MALFORMED` if it has no right form, and was not put.
            tree: the digest of its trees.
            size: its bytes.

        Returns:
            Whether its round is still on.

        Raises:
            PeerViolationError: it is not the one that was offered.
        """
        run = self._actor.rounds.find(message.round_id)
        if run is None:
            return False
        if found != MALFORMED and not same(found, part):
            await self._violated(f"forwards a part of {message.client!r} that is not the one it offered")
        self._note(run, message, part, found, tree, size)
        await self._actor.post_from_peer(Forwarded(message, size, part))
        return True

    def kept_offhand(self, message: Forward, part: bytes, found: bytes, tree: bytes, size: int) -> bool:
        """Whether a part that was wanted has been noted at once, as `kept` does; else that has to do it."""
        run = self._actor.rounds.find(message.round_id)
        if run is None or not same(found, part) or not self._actor.takes_from_peer(Forwarded(message, size, part)):
            return False
        self._note(run, message, part, found, tree, size)
        return True

    def _note(self, run: RoundRun, message: Forward, part: bytes, found: bytes, tree: bytes, size: int) -> None:
        key = RequestKey(message.client, message.purpose, message.query)
        run.records.note_tree(key, part, tree)
        if found == MALFORMED:
            run.records.note_malformed(key, part, "bits of the public part are set that nothing reads")
        else:
            run.records.note_kept(key, part, size)

    async def _violated(self, explanation: str) -> NoReturn:
        """Let the server's own task end for what the peer has done, as for all that it does against the protocol."""
        await self._actor.post_from_peer(Violated(explanation))
        raise PeerViolationError(self._actor.setup.peer_name, explanation)


class OwnDesk:
    """The desk of a server that is one process: see `PartDesk`.

    Args:
        actor: has the rounds.
    """

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._offers = Offers(actor)

    async def offered(self, offer: OfferPart) -> Verdict:
        """See `PartDesk.offered`."""
        return await self._offers.offered(_forward(offer), offer.part, offer.size)

    async def keep(self, offer: OfferPart, part: memoryview) -> None:
        """See `PartDesk.keep`."""
        message, size = _forward(offer), len(part)
        run = self._actor.rounds.find(offer.round_id)
        if run is None:
            return  # it is over
        layout = layout_of(run.config, message, size)
        found, wrong = await self._actor.setup.lane.run(partial(looked_through, run.config.shape, layout, part))
        is_offered = same(found.part, offer.part)
        if is_offered and not wrong:
            await run.records.keep_part(RequestKey(offer.client, offer.purpose, offer.query), found.part, part)
        said = MALFORMED if is_offered and wrong else found.part
        await self._offers.kept(message, offer.part, said, found.tree, size)


def _forward(offer: OfferPart) -> Forward:
    """An offer as what comes over the link between the servers."""
    return Forward(round_id=offer.round_id, client=offer.client, purpose=offer.purpose, query=offer.query)
