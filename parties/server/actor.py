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
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import assert_never

import trio

from fsl_async.errors import PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.protocols.ending import CloseRound, GaveUp
from fsl_async.protocols.machine import Event
from fsl_async.wire.codec import Received
from fsl_async.wire.messages import (
    Abort,
    AskedList,
    AskPieces,
    Closing,
    Commitment,
    Conclusion,
    Forward,
    FromPeer,
    Held,
    HeldParts,
    Known,
    Proofs,
    RosterList,
    RowCounts,
    Share,
    SharePiece,
    TossCommitment,
    TossReveal,
)
from parties.events import PeerLost, PeerMet
from parties.server.evidence import Evidence
from parties.server.inbox import Entering, Gathered, Heard, Item, Mark, Met, Ours, Said
from parties.server.peer.forwarding import Forwarded, longest_peer_message, objection, take_in
from parties.server.peer.link import PeerLink
from parties.server.peer.reconciliation import Meeting
from parties.server.records import ServerRecords
from parties.server.refusals import RequestRefusedError
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Rounds
from parties.server.setup import ServerSetup
from parties.server.store_layout import RequestKey
from parties.server.traffic import Traffic

AWAY_SECONDS = 3.0
"""Seconds without a connection to the peer after which clients are told that it is away."""


class Actor:
    """The one task of a server that changes anything.

    Args:
        setup: what the server is made of.
        traffic: hears of every message to and from the peer.

    Attributes:
        setup: what the server is made of.
        records: what the server keeps beyond a round.
        rounds: the rounds, as the server's tasks see them.
        sequence: moves the rounds on.
        link: the connection to the peer.
        meeting: what this server makes of the peer while they are connected.
    """

    def __init__(self, setup: ServerSetup, traffic: Traffic) -> None:
        self.setup = setup
        self.records = ServerRecords(setup)
        self.link = PeerLink(setup.peer_name, longest_peer_message(setup.task), self, traffic)
        self.meeting = Meeting(setup.name, self.link, setup.observe)
        self.rounds = Rounds(setup.peer_name, self.records.history)
        self.sequence = RoundSequence(setup, self.records, self.rounds, self.link, self.post_event, self._post_gathered)
        self._submitted: list[tuple[bytes, ssa.Submitted]] = []
        self._inbox_in, self._inbox = trio.open_memory_channel[Item](64)

    async def restore(self) -> None:
        """Read back what the store holds."""
        await self.records.restore()
        await self.sequence.restore()

    async def begin(self, nursery: trio.Nursery) -> None:
        """Continue where the store has it; rounds and the actor run in a nursery that ends with the server."""
        nursery.start_soon(self.sequence.engine.run, self.setup.observe)
        await self.sequence.begin(nursery)
        nursery.start_soon(self._act)
        nursery.start_soon(self._watch_peer)

    async def post_event(self, round_id: bytes, event: Event) -> None:
        """Post an event of our own for a round; submissions that wait for their turn at the same time have one."""
        if not isinstance(event, ssa.Submitted):
            await self._post(Ours(round_id, event))
            return
        self._submitted.append((round_id, event))
        if len(self._submitted) == 1:
            await self._post(Entering())

    async def _post_gathered(self, number: int) -> None:
        await self._post(Gathered(number))

    async def _act(self) -> None:
        try:
            async with self._inbox:  # a task that still posts does not wait for an actor that has ended
                try:
                    async for item in self._inbox:
                        await self._take(item)
                        await self.sequence.move_on()
                finally:
                    self._let_waiting_go()
        except PeerViolationError as error:
            await self.records.evidence.keep(
                Evidence(number=self.sequence.number, about=error.peer, kind="violation", explanation=str(error))
            )
            await self.link.flush()  # so that the peer hears what contradicts it, and ends as well
            raise

    async def _take(self, item: Item) -> None:
        match item:
            case Met():
                self._resend()
            case Heard() | Forwarded() if not self.meeting.listens:
                pass
            case Heard(message=message, bulk=bulk):
                await self._take_from_peer(message, bulk)
            case Forwarded():
                self._take_forward(item)
            case Ours(round_id=round_id, event=event):
                await self.take_own(round_id, event)
            case Entering():
                await self._enter()
            case Gathered(number=number):
                await self.sequence.freeze(number)
            case Mark(taken=taken):
                taken.set()
            case _:
                assert_never(item)

    async def take_own(self, round_id: bytes, event: Event) -> None:
        """Take an event of our own, unless it comes too late."""
        run = self.rounds.find(round_id)
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

    async def _enter(self) -> None:
        """Take all submissions that wait."""
        submitted, self._submitted = self._submitted, []
        for round_id, of_round in groupby(submitted, itemgetter(0)):
            await self.take_submitted(round_id, [event for _, event in of_round])

    async def take_submitted(self, round_id: bytes, submitted: Sequence[ssa.Submitted]) -> None:
        """Take submissions that wait together, unless they come too late."""
        run = self.rounds.find(round_id)
        if run is not None:
            await run.enter(submitted)

    # ---- the peer

    async def peer_met(self) -> None:
        """See `PeerListener.peer_met`."""
        self.setup.observe(PeerMet())
        await self._post(Met())

    async def _watch_peer(self) -> None:
        """Let clients know when the peer has been away for a while: they wait for it, and know it only from us."""
        while True:
            since = trio.current_time()
            with trio.move_on_after(AWAY_SECONDS) as shortly:
                await self.link.until(connected=True)
            if shortly.cancelled_caught:
                self.rounds.note_peer_away(since)
                await self.link.until(connected=True)
                self.rounds.note_peer_away(None)
            await self.link.until(connected=False)

    def peer_lost(self) -> None:
        """See `PeerListener.peer_lost`."""
        self.setup.observe(PeerLost(explanation="the connection has ended"))

    async def peer_said(self, received: Received[FromPeer]) -> None:
        """Bring a message of the peer's to the inbox; a public part goes to the round's records instead."""
        message = received.message
        if not isinstance(message, Forward):
            await self._post(Heard(message, received.bulk))
            return
        if self.rounds.find(message.round_id) is None:
            await self.catch_up()  # what came before may open its round
        run, size = self.rounds.find(message.round_id), len(received.bulk)
        if run is None or objection(run, message, size):
            await self._post(Forwarded(message, size, None))
            return
        known = message.client in self.records.enrolment
        await self._post(await take_in(run, message, received.bulk, self.setup.lane, known=known))

    async def catch_up(self) -> None:
        """Wait until everything posted so far has been taken, or the actor has ended."""
        mark = Mark()
        await self._post(mark)
        await mark.taken.wait()

    def _let_waiting_go(self) -> None:
        """Let those go who wait for an actor that ends."""
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                item = self._inbox.receive_nowait()
                if isinstance(item, Mark):
                    item.taken.set()

    def _resend(self) -> None:
        """Say again what the peer may lack, after what this server knows."""
        self.meeting.begin(self.sequence.known())
        self.sequence.resend()

    async def _take_from_peer(self, message: Said, bulk: memoryview) -> None:
        match message:
            case Known():
                await self.meeting.take(self.sequence.known(), message)
                if self.meeting.listens:
                    await self.sequence.take_known(message)
            case HeldParts():
                await self.sequence.take_held(message, bulk)
            case TossCommitment() | TossReveal():
                await self.sequence.take_toss(message)
            case AskedList():
                await self.sequence.take_asked(message, bulk)
            case (
                Closing()
                | Held()
                | RosterList()
                | Proofs()
                | RowCounts()
                | Commitment()
                | Share()
                | AskPieces()
                | SharePiece()
                | Conclusion()
                | Abort()
            ):
                run = self.rounds.find(message.round_id)
                if run is None:
                    self.sequence.check_known(message.round_id)
                else:
                    await run.take_message(message, bulk)
            case _:
                assert_never(message)

    def _take_forward(self, forwarded: Forwarded) -> None:
        """Take note of a client's public part that the peer carried."""
        message, peer = forwarded.message, self.setup.peer_name
        run = self.rounds.find(message.round_id)
        if run is None:
            self.sequence.check_known(message.round_id)
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

    async def _post(self, item: Item) -> None:
        """Put something into the inbox; an actor that has ended takes nothing, and the server ends with it."""
        try:
            await self._inbox_in.send(item)
        except trio.BrokenResourceError:
            if isinstance(item, Mark):
                item.taken.set()
