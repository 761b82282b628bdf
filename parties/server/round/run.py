"""One round on one server: the machine of `fsl_async.protocols.round`, fed, recorded and obeyed.

Rules: an event is recorded before the new state is adopted, and the state adopted before its effects are performed; a
peer's message that is ahead of us waits its turn; computation happens in tasks of the round's nursery and comes back
as events, so only the server's own task changes the state. After a restart the recorded events are taken again, and
the effects of the state they lead to are performed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Union

import msgspec
import trio

from fsl_async.config import restricted
from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.protocols import assembly
from fsl_async.protocols import round as protocol
from fsl_async.protocols.machine import Event, UnexpectedEvent, accepted_later, held_back
from fsl_async.server.aggregation import Aggregate
from fsl_async.server.retrieval import Query
from fsl_async.union import UnionBlock, describe_union
from fsl_async.wire.entries import unpack_entries
from fsl_async.wire.messages import Abort, Commitment, Conclusion, Proofs, RosterList, Share
from parties.concurrency import RecurringEvent
from parties.events import Evaluated, RoundMoved, SubmissionIn
from parties.outcome import RoundOutcome, RoundReport
from parties.server.round.accumulation import Accumulator
from parties.server.round.assembly import ContradictionError, RequestAssembly, RequestKey, RequestRefusedError
from parties.server.round.conclusion import Opened, conclude
from parties.server.round.contradictions import seen_in, strangers_in
from parties.server.round.outbox import Outbox
from parties.server.round.quota import RoundQuota
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import RetrievalBatcher
from parties.server.round.terms import Terms, Tools
from parties.server.round.update import Model
from parties.server.round.waiting import awaits_peer, waiting_for
from parties.status import PastRound, RoundStatus
from parties.storage.decoding import decode_stored, replaying
from parties.storage.store import Record

__all__ = ["Model", "RoundRun", "Terms", "Tools"]


class RoundRun:
    """A round from open to settled.

    Attributes:
        config: the round.
        round_id: its name in every message.
        records: what it keeps in the store.
        desk: the clients' requests.
        allowance: how many each of them has made.
        settled: set when the round is done or aborted.
        model: as it stands: before the round, or after it.
        union: by sparse block, the union: the one this round found, or the one it is aligned on.
    """

    def __init__(self, terms: Terms, records: RoundRecords, tools: Tools) -> None:
        self.config = terms.config
        self.round_id = terms.config.round_id()
        self.records = records
        self.terms = protocol.Terms(
            self.round_id, terms.server, self.config.task.min_clients, self.config.task.verified
        )
        self.desk = RequestAssembly(
            self.terms.peer, self.config.task.max_clients, lambda client: self.config.carrier(client) != terms.server
        )
        self.allowance = RoundQuota(self.config.task.retrievals)
        self.settled = trio.Event()
        self.model = terms.model
        self.union = terms.union
        self._begun = terms
        self._tools = tools
        self._state: protocol.Round = protocol.Open()
        self._early: list[Event] = []
        self._claims: dict[str, bytes] = {}
        self._entered: set[str] = set()
        self._outbox = Outbox(self.round_id, tools.link, records, self.settled)
        make = partial(Aggregate, self.config, terms.server, terms.proof_key, terms.union, tools.memory)
        self._adder = Accumulator(make, records.submission, tools.lane, self._evaluated, self.settled)
        self._answerer = RetrievalBatcher(self.config, terms.server, self.table(), tools.lane)
        self._opened: list[Opened] = []
        self._changed = RecurringEvent()

    @property
    def _journal(self) -> str:
        return f"{self.records.prefix}/events"

    # ---- how it stands

    def table(self) -> Model:
        """The model as this round retrieves it: of some blocks the union's rows alone."""
        return {
            name: restricted(array, self.union[name]) if self.config.in_ranks(name) else array
            for name, array in self.model.items()
        }

    @property
    def state(self) -> protocol.Round:
        """The machine's state."""
        return self._state

    @property
    def is_full(self) -> bool:
        """Whether as many submissions are in as close the round at once."""
        return isinstance(self._state, protocol.Open) and len(self._state.entries) >= self._begun.enough

    def admits(self, client: str) -> bool:
        """Whether a submission of this client can still come in."""
        match self._state:
            case protocol.Open():
                return True
            case protocol.Closing(theirs=theirs):
                return client in theirs
            case _:
                return False

    def has(self, client: str) -> bool:
        """Whether a submission of this client is in."""
        return client in self._entered

    def outcome(self) -> RoundOutcome:
        """The sum of a round that is done, and was not refused.

        Raises:
            MisuseError: there is none.
        """
        for opened in self._opened:
            if not opened.refused:
                return opened.outcome
        raise MisuseError(f"round {self.config.number} has no sum: it was aborted, or its sum was refused")

    def counted(self) -> tuple[str, ...]:
        """Who was counted; nobody where the round was aborted, or its sum refused."""
        return next((opened.outcome.clients for opened in self._opened if not opened.refused), ())

    def report(self) -> RoundReport:
        """The public account of a settled round."""
        match self._state:
            case protocol.Aborted(explanation=explanation):
                return RoundReport(
                    round_id=self.round_id,
                    number=self.config.number,
                    aborted=explanation,
                    clients=(),
                    excluded={},
                    model=self.config.model,
                )
            case protocol.Done():
                return self._account()
        raise UnexpectedEvent(self._state, protocol.CloseRound(), protocol.ACCEPTS)

    def past(self) -> PastRound:
        """A settled round, as it is remembered."""
        return PastRound(
            report=self.report(),
            phase=self.config.phase,
            opened_at=self._begun.opened_at,
            settled_at=self._tools.clock(),
            evaluating=self._adder.seconds,
        )

    def status(self) -> RoundStatus:
        """How the round stands, for people."""
        return RoundStatus(
            number=self.config.number,
            round_id=self.round_id,
            phase=self.config.phase,
            state=type(self._state).__name__,
            opened_at=self._begun.opened_at,
            closes_at=self._begun.closes_at,
            submissions=len(self._entered),
            evaluated=self._adder.added,
            minimum=self.config.task.min_clients,
            maximum=self._begun.enough,
            waiting_for=waiting_for(self._state, self.records.awaits_any, self.terms.peer),
        )

    def _account(self) -> RoundReport:
        (opened,) = self._opened
        return RoundReport(
            round_id=self.round_id,
            number=self.config.number,
            aborted="",
            refused=opened.refused,
            clients=opened.outcome.clients,
            excluded=opened.outcome.excluded,
            model=opened.described,
            union=self.found_union(),
        )

    def found_union(self) -> tuple[UnionBlock, ...]:
        """The union this round found, as configurations and outcomes describe it; empty in a main round."""
        if self.config.phase == "main":
            return ()
        return tuple(
            describe_union(block.name, self.union[block.name], block.rows)
            for _, block in self.config.task.sparse_blocks()
        )

    def release(self) -> None:
        """Let go of all that it holds in memory: it is settled, and none of its tasks runs any more."""
        self.records.release()
        self._adder.release()

    # ---- what clients cause

    def forward(self, key: RequestKey, part: bytes) -> None:
        """Send a client's stored public part to the peer, now and each time the servers meet again."""
        self._outbox.forward(key, part)

    def claim(self, client: str, submission: bytes) -> bool:
        """Reserve the client's one place in the round; False if it holds it already, with the same submission.

        Raises:
            RequestRefusedError: its place is taken by another submission of its own, or the round is full.
        """
        known = self._claims.get(client, submission)
        if known != submission:
            explanation = "another submission of yours is in for this round"
            raise ContradictionError("conflict", explanation, "two-contents", known, submission)
        if client in self._claims:
            return False
        if len(self._claims) >= self.config.task.max_clients:
            raise RequestRefusedError.because("limit", f"the round has all of its {len(self._claims)} clients")
        self._claims[client] = submission
        return True

    def give_back(self, client: str) -> None:
        """Take back a client's claim, for its submission could not be stored; it may come again, and so may others."""
        del self._claims[client]
        self._changed.set()

    async def part(self, key: RequestKey, name: bytes) -> memoryview:
        """The public part of a client's request.

        Raises:
            RequestRefusedError: the round is over by now, and its records are gone.
            StorageError: it is not kept.
        """
        try:
            return await self.records.part(key, name)
        except StorageError:
            if not self.settled.is_set():
                raise
            raise RequestRefusedError.because("round-closed", f"round {self.config.number} is over") from None

    async def answer(self, query: Query) -> memoryview:
        """Answer a retrieval, together with others that wait at the same time."""
        return await self._answerer.answer(query)

    async def entered(self, client: str) -> bool:
        """Wait until a submission is in the round's list; False if the round closed before.

        Raises:
            RequestRefusedError: it could not be stored, though it came another time than this.
        """
        while client not in self._entered:
            if not self.admits(client):
                return False
            if client not in self._claims:
                raise RequestRefusedError.because("busy", "it could not be stored; send it again", 1)
            await self._changed.wait()
        return True

    # ---- what the server's own task does

    async def begin(self) -> None:
        """Take up what is recorded, and set to work; nothing is recorded of a round that has just opened."""
        await self._replay()
        await self._restore_desk()
        for client in _still_needed(self._state):
            self._adder.put(client)
        self._tools.nursery.start_soon(self._adder.work)
        self._tools.nursery.start_soon(self._answerer.work)
        for effect in protocol.effects(self._state, self.terms):
            self._perform(effect)
        if isinstance(self._state, protocol.Open) and self._begun.closes_at != float("inf"):
            self._tools.nursery.start_soon(self._close_when_due)
        self._watch_peer()

    async def _replay(self) -> None:
        """Take the recorded events again; an update that has been applied is formed once more."""
        for entry in await self.records.store.entries(self._journal):
            before, event = self._state, decode_stored(entry, _EVENTS, self._journal)
            with replaying(self._journal):
                self._adopt(event)
            if isinstance(before, protocol.Combined):
                apply = (
                    effect for effect in protocol.effects(before, self.terms) if isinstance(effect, protocol.Apply)
                )
                await self._conclude(next(apply))

    async def take(self, event: Event) -> None:
        """Record an event, adopt the new state, perform what is new in its effects; then whatever had come early.

        Raises:
            PeerViolationError: the peer broke the protocol.
            StorageError: the event could not be recorded; the state is as before.
        """
        if type(event) not in protocol.ACCEPTS[type(self._state)] and accepted_later(
            protocol.ACCEPTS, self._state, event
        ):
            self._early = held_back(self._early, event, self.terms.peer)
            return
        before = self._state
        if protocol.step(before, event, self.terms) == before:
            return
        await self.records.own.commit(Record(self._journal, msgspec.msgpack.encode(event)))
        for seen in seen_in(before, event, self.config.number, self.terms.peer):
            await self._tools.evidence.keep(seen)
        for warned in strangers_in(before, event, self.config.number, self.terms.peer, self._tools.known):
            self._tools.observe(warned)
        self._adopt(event)
        self._begin_effects(before, event)
        early, self._early = self._early, []
        for waiting in early:
            await self.take(waiting)

    def _adopt(self, event: Event) -> None:
        before = self._state
        self._state = protocol.step(before, event, self.terms)
        if isinstance(event, protocol.Submitted):
            self._entered.add(event.client)
            self._claims[event.client] = event.digest
        self._tell()

    def _begin_effects(self, before: protocol.Round, event: Event) -> None:
        number = self.config.number
        if isinstance(event, protocol.Submitted):
            self._adder.put(event.client)
            self._tools.observe(SubmissionIn(number=number, client=event.client, total=len(self._entered)))
        done = protocol.effects(before, self.terms)
        for effect in protocol.effects(self._state, self.terms):
            if effect not in done:
                self._perform(effect)
        if type(before) is not type(self._state):
            self._tools.observe(RoundMoved(number=number, state=type(self._state).__name__))
            self._watch_peer()

    async def take_message(self, message: Any, bulk: memoryview) -> None:
        """Take a message of the peer's that belongs to this round.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or comes where no honest server sends it.
        """
        try:
            await self._take_said(message, bulk)
        except UnexpectedEvent as error:
            raise PeerViolationError(self.terms.peer, f"speaks out of turn: {error}") from error

    async def _take_said(self, message: Any, bulk: memoryview) -> None:
        match message:
            case RosterList():
                entries = unpack_entries(bulk, self.config.task.max_clients, self.terms.peer)
                await self.take(protocol.PeerRoster(entries))
            case Proofs():
                proofs = unpack_entries(bulk, self.config.task.max_clients, self.terms.peer)
                await self.take(protocol.PeerProofs(proofs))
            case Commitment(commitment=commitment):
                await self.take(protocol.PeerCommitment(commitment))
            case Share() if isinstance(self._state, protocol.BEFORE_REVEALED):
                state = type(self._state).__name__
                raise PeerViolationError(
                    self.terms.peer, f"revealed its share in state {state}, before both commitments were exchanged"
                )
            case Share(nonce=nonce):
                said = protocol.PeerShare(self.records.share_name(bulk, self.terms.peer), nonce)
                if protocol.step(self._state, said, self.terms) != self._state:  # judged before it is stored
                    await self.records.keep_share(bulk)
                    await self.take(said)
            case Conclusion(outcome=outcome):
                await self.take(protocol.PeerConclusion(outcome))
            case Abort(explanation=explanation):
                await self.take(protocol.PeerAbort(explanation))

    def resend(self) -> None:
        """Perform again what the state says the peer may lack: after the servers have met anew."""
        self._outbox.resend_forwards()
        for effect in protocol.effects(self._state, self.terms):
            if isinstance(effect, protocol.Send | protocol.SendShare):
                self._outbox.send(effect)

    def _perform(self, effect: protocol.Effect) -> None:
        start = self._tools.nursery.start_soon
        match effect:
            case protocol.Send() | protocol.SendShare():
                self._outbox.send(effect)
            case protocol.AwaitGrace():
                start(self._wait_for_grace)
            case protocol.Evaluate(roster=roster):
                start(self._evaluate, frozenset(roster))
            case protocol.Sum(counted=counted):
                start(self._sum, frozenset(counted))
            case protocol.Apply():
                start(self._apply, effect)

    def _tell(self) -> None:
        """Wake whoever waits for this round, and end what is over with this state."""
        self._changed.set()
        if not isinstance(self._state, protocol.Open | protocol.Closing):
            self.desk.close(f"round {self.config.number} has closed")
        if isinstance(self._state, protocol.Done | protocol.Aborted):
            self.settled.set()

    def _watch_peer(self) -> None:
        """Where the peer is awaited and nothing has been committed to, do so for a while only."""
        if awaits_peer(self._state, self.records.awaits_any) and self._tools.patience != float("inf"):
            self._tools.nursery.start_soon(self._lose_patience, self._state)

    async def _close_when_due(self) -> None:
        await trio.sleep(max(0.0, self._begun.closes_at - self._tools.clock()))
        await self._tools.report(self.round_id, protocol.CloseRound())

    async def _lose_patience(self, state: protocol.Round) -> None:
        await trio.sleep(self._tools.patience)
        if self._state is state and awaits_peer(state, self.records.awaits_any):
            waited = f"{self.terms.peer} was awaited in state {type(state).__name__} for {self._tools.patience:g} s"
            await self._tools.report(self.round_id, protocol.GaveUp(waited))

    async def _wait_for_grace(self) -> None:
        await trio.sleep(self._tools.grace)
        await self._tools.report(self.round_id, protocol.GraceOver())

    async def _restore_desk(self) -> None:
        """Put the requests of before a restart back on the desk; the carrier forwards them once more.

        Of a request that is noted, but not its part, the part was on loan.
        """
        for key, part in await self.records.parts():
            self.desk.restore(key, assembly.Public(part), f"{self.records.prefix}/parts")
            if self.config.carrier(key.client) == self.terms.server:
                self._outbox.note_forward(key, part)
        for key, part in await self.records.requests():
            place = f"{self.records.prefix}/requests"
            self.desk.restore(key, assembly.Direct(part), place)
            if not self.desk.has_public(key, part) and self.config.carrier(key.client) != self.terms.server:
                self.desk.restore(key, assembly.Public(part), place)
                self.records.await_part(key, part)

    # ---- computation

    def _evaluated(self, client: str, seconds: float) -> None:
        self._tools.observe(
            Evaluated(number=self.config.number, client=client, seconds=seconds, total=self._adder.added)
        )

    async def _evaluate(self, roster: frozenset[str]) -> None:
        proofs = await self._adder.proofs(roster)
        await self._tools.report(self.round_id, protocol.Evaluated(proofs))

    async def _sum(self, counted: frozenset[str]) -> None:
        share = await self._adder.share(counted)
        nonce = self._tools.randomness(DIGEST_BYTES)
        await self._tools.report(self.round_id, protocol.Summed(await self.records.keep_share(share), nonce))

    async def _apply(self, effect: protocol.Apply) -> None:
        await self._conclude(effect)
        await self._tools.report(self.round_id, protocol.Applied(self._account().digest()))

    async def _conclude(self, effect: protocol.Apply) -> None:
        """Form the outcome from both shares."""
        opened = await conclude(self._begun, self.records, self._tools, effect)
        self.union, self.model, self._opened = opened.union, opened.model, [opened]


_EVENTS: Any = Union[tuple(dict.fromkeys(event for _, event in protocol.TRANSITIONS))]  # noqa: UP007 - made from a table


def _still_needed(state: protocol.Round) -> Iterable[str]:
    """Whose submissions must be in the sum, or may come to be."""
    match state:
        case protocol.Open(entries=clients) | protocol.Closed(entries=clients) | protocol.Closing(entries=clients):
            return clients
        case protocol.Rostered(roster=clients) | protocol.Proved(roster=clients) | protocol.Verified(counted=clients):
            return clients
        case _:
            return ()
