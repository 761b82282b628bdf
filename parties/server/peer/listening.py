"""What comes from the other server, on its way to the actor."""

from __future__ import annotations

from fsl_async.foreign_text import shortened
from fsl_async.wire.codec import Received
from fsl_async.wire.messages import Forward, FromPeer, Refused
from parties.events import PeerLost, PeerMet
from parties.server.admission import Enrolment
from parties.server.inbox import Heard, Inbox
from parties.server.peer.forwarding import Forwarded, objection, take_in
from parties.server.rounds import Rounds
from parties.server.setup import ServerSetup


class PeerInbox:
    """Brings what the peer says to the inbox; see `PeerListener`.

    Args:
        setup: what the server is made of.
        inbox: the actor's.
        rounds: where the rounds of forwarded parts are found.
        enrolment: the clients that are known here.

    Attributes:
        stops_since: as in `ServerStatus`; who says so falsely hides its own absence alone.
        away_since: as in `ServerStatus`.
    """

    def __init__(self, setup: ServerSetup, inbox: Inbox, rounds: Rounds, enrolment: Enrolment) -> None:
        self._setup = setup
        self._inbox = inbox
        self._rounds = rounds
        self._enrolment = enrolment
        self.stops_since: float | None = None
        self.away_since: float | None = None
        self._why_lost = ""

    async def peer_met(self) -> None:
        """See `PeerListener.peer_met`."""
        self.stops_since = self.away_since = None
        self._why_lost = "the connection has ended"
        self._setup.observe(PeerMet())
        await self._inbox.put("peer met")

    def peer_lost(self) -> None:
        """See `PeerListener.peer_lost`."""
        self.away_since = self._setup.clock()
        self._setup.observe(PeerLost(explanation=self._why_lost))

    async def peer_said(self, received: Received[FromPeer]) -> None:
        """Bring a message of the peer's to the inbox; a public part goes to the round's records instead."""
        message = received.message
        if isinstance(message, Refused):
            self._why_lost = f"{self._setup.peer_name} says: {shortened(message.explanation)}"
            self.stops_since = self._setup.clock() if message.reason == "busy" else None
            return
        if not isinstance(message, Forward):
            await self._inbox.put(Heard(message, received.bulk))
            return
        if self._rounds.find(message.round_id) is None:
            await self._inbox.all_taken()  # what came before may open its round
        run, size = self._rounds.find(message.round_id), len(received.bulk)
        if run is None or objection(run, message, size):
            await self._inbox.put(Forwarded(message, size, None))
            return
        known = message.client in self._enrolment
        await self._inbox.put(await take_in(run, message, received.bulk, self._setup.lane, known=known))
