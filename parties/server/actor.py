"""A server's actor: only it changes what a round's state is.

Its inbox takes the peer's messages and the results of our own computations, one after the other, so there is nothing to
lock. Everybody else reads rounds, waits on them, and posts to the inbox.

    listener ──> conversations ────┐
    peer link ─────────────────────┼──> inbox ──> actor ──> toss ──> round ──> toss ──> …
    compute tasks ─────────────────┘

Rules: what the actor takes is recorded before it is adopted (see `parties.server.round.run`); where it records
something and finds no room, it waits; a peer that breaks the protocol ends the actor, and the server with it. Which
round follows which is in `parties.server.round_sequence`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import assert_never

import trio

from fsl_async.errors import PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.protocols.ending import CloseRound, GaveUp
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import AskedList, Known, TossCommitment, TossReveal
from parties.server.evidence import Evidence, EvidenceBook
from parties.server.inbox import Gathered, Heard, Inbox, Item, Ours, Said
from parties.server.peer.forwarding import Forwarded, objection
from parties.server.peer.link import PeerLink
from parties.server.peer.meeting import PeerAgreement
from parties.server.replies import RequestRefusedError, farewell
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Rounds
from parties.server.store_layout import RequestKey


@dataclass(eq=False, repr=False)
class Actor:
    """The one task of a server that changes anything.

    Args:
        inbox: what it takes.
        evidence: keeps what the peer did against the protocol.
        rounds: the rounds, as the server's tasks see them.
        sequence: moves the rounds on.
        link: the connection to the peer.
        agreement: what this server makes of the peer while they are connected.
    """

    _inbox: Inbox
    _evidence: EvidenceBook
    _rounds: Rounds
    _sequence: RoundSequence
    _link: PeerLink
    _agreement: PeerAgreement

    async def run(self) -> None:
        """Take what is put into the inbox, until the peer breaks the protocol.

        Raises:
            PeerViolationError: it has; it is in the evidence.
        """
        try:
            async with self._inbox.items() as items:
                async for item in items:
                    await self._take(item)
                    await self._sequence.move_on()
        except PeerViolationError as error:
            await self._evidence.keep(
                Evidence(number=self._sequence.number, about=error.peer, kind="violation", explanation=str(error))
            )
            self._link.post(farewell("malformed", error.peer, error))
            await self._link.flush()  # so that the peer hears what contradicts it, and ends as well
            raise

    async def _take(self, item: Item) -> None:
        match item:
            case "peer met":
                self._resend()
            case Heard() | Forwarded() if not self._agreement.listens:
                pass
            case Heard(message=message, bulk=bulk):
                await self._take_from_peer(message, bulk)
            case Forwarded():
                self._take_forward(item)
            case Ours(round_id=round_id, event=event):
                await self._take_own(round_id, event)
            case "submissions wait":
                for round_id, of_round in groupby(self._inbox.submitted(), itemgetter(0)):
                    await self._take_submitted(round_id, [event for _, event in of_round])
            case Gathered(number=number):
                await self._sequence.freeze(number)
            case trio.Event():
                item.set()
            case _:
                assert_never(item)

    async def _take_own(self, round_id: bytes, event: Event) -> None:
        """Take an event of our own, unless it comes too late."""
        run = self._rounds.find(round_id)
        if run is None:
            return  # the round is over; a timer of its grace period, say, comes too late
        match event:
            case ssa.Submitted():
                await run.enter([event])
                return
            case CloseRound() if not run.accepts(CloseRound):
                return
            case GaveUp() if not run.accepts(GaveUp):
                return  # too late: what was awaited has come
        await run.take(event)

    async def _take_submitted(self, round_id: bytes, submitted: Sequence[ssa.Submitted]) -> None:
        """Take submissions that wait together, unless they come too late."""
        run = self._rounds.find(round_id)
        if run is not None:
            await run.enter(submitted)

    # ---- the peer

    def _resend(self) -> None:
        """Say again what the peer may lack, after what this server knows."""
        self._agreement.begin(self._sequence.known())
        self._sequence.resend()

    async def _take_from_peer(self, message: Said, bulk: memoryview) -> None:
        match message:
            case Known():
                await self._agreement.take(self._sequence.known(), message)
                if self._agreement.listens and self._rounds.running is not None:
                    await self._rounds.running.peer_is_at(message.present)
            case TossCommitment() | TossReveal():
                await self._sequence.take_toss(message)
            case AskedList():
                await self._sequence.take_asked(message, bulk)
            case _:  # of a round
                run = self._rounds.find(message.round_id)
                if run is None:
                    self._sequence.check_known(message.round_id)
                else:
                    await run.take_message(message, bulk)

    def _take_forward(self, forwarded: Forwarded) -> None:
        """Take note of a client's public part that the peer carried."""
        message, peer = forwarded.message, self._link.peer
        run = self._rounds.find(message.round_id)
        if run is None:
            self._sequence.check_known(message.round_id)
            return  # for a round that has closed; the client hears so from its own connection
        wrong = objection(run, message, forwarded.size)
        if wrong is not None:
            raise PeerViolationError(peer, wrong)
        if forwarded.part is None:
            return  # nothing was kept, and nothing is wrong: see `take_in`
        try:
            run.requests.public(RequestKey(message.client, message.purpose, message.query), forwarded.part)
        except RequestRefusedError as error:
            raise PeerViolationError(peer, f"forwards twice for {message.client!r}: {error}") from error
