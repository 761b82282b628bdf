"""One round on one server: the machine of `fsl_async.protocols.ssa`, fed, recorded and obeyed.

Rules: an event is recorded before the new state is adopted, and the state is adopted before its effects are performed;
a peer's message that is ahead of us waits its turn; computations and timers run in tasks of the round's nursery and
report events, so only the server's own task changes the state. After a restart the recorded events are taken again, and
the effects of the state they lead to are performed again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Union, assert_never

import msgspec
import trio

from fsl_async.errors import MisuseError, PeerViolationError, StorageError
from fsl_async.protocols import assembly, ssa
from fsl_async.protocols.machine import Event, UnexpectedEvent, accepted_later, held_back
from fsl_async.wire.client_digests import unpack_digests
from fsl_async.wire.messages import Abort, Closing, Commitment, Conclusion, OfRound, Proofs, RosterList, Share
from parties.events import RoundMoved, SubmissionIn
from parties.outcome import Model, RoundOutcome, RoundReport, SumRefused
from parties.server.refusals import RequestRefusedError
from parties.server.round.assembly import RequestAssembly, RequestKey
from parties.server.round.claims import Claims
from parties.server.round.computation import Computation
from parties.server.round.conclusion import aborted_report, difference
from parties.server.round.contradictions import seen_in, strangers_in
from parties.server.round.outbox import Outbox
from parties.server.round.quota import RoundQuota
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import RetrievalBatcher
from parties.server.round.start import RoundStart, Tools
from parties.server.round.timers import Timers
from parties.server.round.waiting import waiting_for
from parties.status import PastRound, RoundStatus
from parties.storage.decoding import decode_stored, replaying
from parties.storage.store import Record


class RoundRun:
    """A round from open to settled.

    Args:
        begun: what it begins with.
        records: what it keeps in the store.
        tools: what it has of its server.

    Attributes:
        config: the round.
        round_id: its name in every message.
        records: as given.
        terms: what its machine has to know.
        requests: the clients' requests, of which halves may be missing.
        quota: how many requests each client has made.
        claims: which clients have a place, and whose submission is in.
        outbox: what goes to the other server.
        settled: set when the round is done or aborted.
    """

    def __init__(self, begun: RoundStart, records: RoundRecords, tools: Tools) -> None:
        self.config = config = begun.config
        self.round_id = config.round_id()
        self.records = records
        task, own = config.task, config.protocol == "ssa" and config.task.rule == "own"
        self.terms = ssa.Terms(self.round_id, begun.server, task.quorum, task.verified, own)
        self.requests = RequestAssembly(
            self.terms.peer, config.task.max_clients, lambda client: config.carrier(client) != begun.server
        )
        self.quota = RoundQuota(config.task.retrievals)
        self.claims = Claims(config.task.max_clients, self.admits)
        self.settled = trio.Event()
        self.outbox = Outbox(self.round_id, tools.link, records, self.settled)
        self._begun = begun
        self._tools = tools
        self._state: ssa.Round = ssa.Open()
        self._early: list[Event] = []
        self._computation = Computation(begun, records, tools, self.settled)
        self._timers = Timers(begun, records, tools, lambda: self._state)
        self._journal = f"{records.prefix}/events"

    # ---- how it stands

    @property
    def state(self) -> ssa.Round:
        """The machine's state."""
        return self._state

    @property
    def retrievals(self) -> RetrievalBatcher:
        """Answers the clients' retrievals."""
        return self._computation.retrievals

    @property
    def model(self) -> Model:
        """The model as it stands: before the round, or after it."""
        opened = self._computation.opened
        return self._begun.model if opened is None else opened.model

    @property
    def kept_state(self) -> Model:
        """What the task's optimizer or own rule keeps: before the round, or after it."""
        opened = self._computation.opened
        return self._begun.state if opened is None else opened.state

    @property
    def union(self) -> Model:
        """By sparse block, the union that this round has found, or the one that it is aligned on."""
        opened = self._computation.opened
        return self._begun.union if opened is None else opened.union

    @property
    def is_full(self) -> bool:
        """Whether as many submissions are in as close the round at once."""
        return isinstance(self._state, ssa.Open) and len(self._state.entries) >= self._begun.enough

    def admits(self, client: str) -> bool:
        """Whether a submission of this client can still come in."""
        match self._state:
            case ssa.Open():
                return True
            case ssa.Closing(theirs=theirs):
                return client in theirs
            case _:
                return False

    def serves(self, client: str) -> bool:
        """Whether this client's requests are answered: its submission can still come in, or is in already."""
        return self.admits(client) or self.claims.has_entered(client)

    def status(self) -> RoundStatus:
        """How the round stands, for people."""
        return RoundStatus(
            number=self.config.number,
            round_id=self.round_id,
            protocol=self.config.protocol,
            state=type(self._state).__name__,
            opened_at=self._begun.opened_at,
            closes_at=self._begun.closes_at,
            submissions=self.claims.entered,
            evaluated=self._computation.added,
            minimum=self.config.task.quorum,
            maximum=self._begun.enough,
            waiting_for=waiting_for(self._state, self.records.awaits_any, self.terms.peer),
        )

    # ---- how it ended

    def outcome(self) -> RoundOutcome:
        """The sum of a round that is done, and was not refused.

        Raises:
            MisuseError: there is none.
        """
        opened = self._computation.opened
        if opened is None or isinstance(opened.ending, SumRefused):
            raise MisuseError(f"round {self.config.number} has no sum: it was aborted, or its sum was refused")
        return opened.outcome

    def report(self) -> RoundReport:
        """The public account of a settled round.

        Raises:
            UnexpectedEvent: it is not settled.
        """
        match self._state, self._computation.opened:
            case ssa.Aborted(explanation=explanation), _:
                return aborted_report(self.config, explanation)
            case ssa.Done() | ssa.Differed(), opened if opened is not None:
                return opened.report(self.config)
        raise UnexpectedEvent(self._state, ssa.CloseRound(), ssa.ACCEPTS)

    def past(self) -> PastRound:
        """A settled round, as it is remembered."""
        return PastRound(
            report=self.report(),
            protocol=self.config.protocol,
            opened_at=self._begun.opened_at,
            settled_at=self._tools.clock(),
            evaluating=self._computation.seconds,
            concluded=self._state.outcome if isinstance(self._state, ssa.Done | ssa.Differed) else b"",
        )

    def release(self) -> None:
        """Free all that it holds in memory: it is settled, and none of its tasks runs any more."""
        self.records.release()
        self._computation.release()

    # ---- what clients need of it

    async def part(self, key: RequestKey, name: bytes) -> memoryview:
        """The public part of a client's request.

        Raises:
            RequestRefusedError: the round is over by now, and its records are gone.
            StorageError: it is not stored.
        """
        try:
            return await self.records.part(key, name)
        except StorageError:
            if not self.settled.is_set():
                raise
            raise RequestRefusedError.because("round-closed", f"round {self.config.number} is over") from None

    # ---- what the server's own task does

    async def begin(self) -> None:
        """Take up what is recorded, and set to work; nothing is recorded of a round that has just opened."""
        await self.replay()
        await self._restore_requests()
        self._computation.begin(_still_needed(self._state))
        for effect in ssa.effects(self._state, self.terms):
            self._perform(effect)
        if isinstance(self._state, ssa.Open):
            self._timers.start_deadline()
        self._timers.watch_peer()

    async def replay(self) -> None:
        """Take the recorded events again; an update that has been applied is formed once more.

        Raises:
            StorageError: the records cannot be read, or do not lead from one state to the next.
        """
        for entry in await self.records.store.entries(self._journal):
            before, event = self._state, decode_stored(entry, _EVENTS, self._journal)
            with replaying(self._journal):
                self._adopt(event)
            if isinstance(before, ssa.Combined):
                for effect in ssa.effects(before, self.terms):
                    if isinstance(effect, ssa.Apply):
                        await self._computation.open(effect)

    async def take(self, event: Event) -> None:
        """Record an event, adopt the new state, perform what is new in its effects; then whatever had come early.

        Evidence that it brings is stored before it is, because a replay does not look for evidence again.

        Raises:
            PeerViolationError: the peer broke the protocol.
            StorageError: the event could not be recorded; the state is as before.
        """
        if type(event) not in ssa.ACCEPTS[type(self._state)] and accepted_later(ssa.ACCEPTS, self._state, event):
            self._early = held_back(self._early, event, self.terms.peer)
            return
        before = self._state
        if ssa.step(before, event, self.terms) == before:
            return
        for seen in seen_in(before, event, self.config.number, self.terms.peer):
            await self._tools.evidence.keep(seen)
        changes = self._computation.own_changes(event)
        await self.records.own.commit(*changes, Record(self._journal, msgspec.msgpack.encode(event)))
        for warned in strangers_in(before, event, self.config.number, self.terms.peer, self._tools.known):
            self._tools.observe(warned)
        self._adopt(event)
        self._begin_effects(before, event)
        early, self._early = self._early, []
        for waiting in early:
            await self.take(waiting)

    async def take_message(self, message: OfRound, bulk: memoryview) -> None:
        """Take a message of the peer's that belongs to this round.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or comes where no honest server sends it.
        """
        try:
            await self._take_said(message, bulk)
        except UnexpectedEvent as error:
            raise PeerViolationError(self.terms.peer, f"speaks out of turn: {error}") from error

    def resend(self) -> None:
        """Send again what the state says the peer may lack, because the servers have met anew."""
        self.outbox.resend_forwards()
        for effect in ssa.effects(self._state, self.terms):
            if isinstance(effect, ssa.Send | ssa.SendShare):
                self.outbox.send(effect)

    async def _take_said(self, message: OfRound, bulk: memoryview) -> None:
        match message:
            case RosterList():
                entries = unpack_digests(bulk, self.config.task.max_clients, self.terms.peer)
                await self.take(ssa.PeerRoster(entries))
            case Proofs():
                proofs = unpack_digests(bulk, self.config.task.max_clients, self.terms.peer)
                await self.take(ssa.PeerProofs(proofs))
            case Commitment(commitment=commitment):
                await self.take(ssa.PeerCommitment(commitment))
            case Share() if isinstance(self._state, ssa.BEFORE_REVEALED):
                state = type(self._state).__name__
                raise PeerViolationError(
                    self.terms.peer, f"revealed its share in state {state}, before both commitments were exchanged"
                )
            case Share(nonce=nonce):
                said = ssa.PeerShare(self.records.share_name(bulk, self.terms.peer), nonce)
                if ssa.step(self._state, said, self.terms) != self._state:  # judged before it is stored
                    await self.records.keep_share(bulk)
                    await self.take(said)
            case Conclusion(outcome=outcome):
                await self.take(ssa.PeerConclusion(outcome))
            case Abort(explanation=explanation):
                await self.take(ssa.PeerAbort(explanation))
            case Closing():
                raise PeerViolationError(self.terms.peer, "closes a round of submissions as one of retrievals")
            case _:
                assert_never(message)

    def _adopt(self, event: Event) -> None:
        self._state = ssa.step(self._state, event, self.terms)
        if isinstance(event, ssa.Submitted):
            self.claims.enter(event.client, event.digest)
        self.claims.wake()
        if not isinstance(self._state, ssa.Open | ssa.Closing):
            self.requests.close(f"round {self.config.number} has closed")
        if isinstance(self._state, ssa.Differed):
            self._computation.withdraw(difference(self.config, self.terms.server, self._state))
        if isinstance(self._state, ssa.Done | ssa.Differed | ssa.Aborted):
            self.settled.set()

    def _begin_effects(self, before: ssa.Round, event: Event) -> None:
        number = self.config.number
        if isinstance(event, ssa.Submitted):
            self._computation.add(event.client)
            self._tools.observe(SubmissionIn(number=number, client=event.client, total=self.claims.entered))
        done = ssa.effects(before, self.terms)
        for effect in ssa.effects(self._state, self.terms):
            if effect not in done:
                self._perform(effect)
        if type(before) is not type(self._state):
            self._tools.observe(RoundMoved(number=number, state=type(self._state).__name__))
            self._timers.watch_peer()

    def _perform(self, effect: ssa.Effect) -> None:
        match effect:
            case ssa.Send() | ssa.SendShare():
                self.outbox.send(effect)
            case ssa.AwaitGrace():
                self._timers.start_grace()
            case ssa.Evaluate() | ssa.Sum() | ssa.Apply():
                self._computation.perform(effect)
            case _:
                assert_never(effect)

    async def _restore_requests(self) -> None:
        """Take up the requests of before a restart; the carrier forwards their parts once more.

        Of a request that is noted, but not its part, the part was on loan.
        """
        for key, part in await self.records.parts():
            self.requests.restore(key, assembly.Public(part), f"{self.records.prefix}/parts")
            if self.config.carrier(key.client) == self.terms.server:
                self.outbox.note_forward(key, part)
        for key, part in await self.records.requests():
            place = f"{self.records.prefix}/requests"
            self.requests.restore(key, assembly.Direct(part), place)
            if not self.requests.has_public(key, part) and self.config.carrier(key.client) != self.terms.server:
                self.requests.restore(key, assembly.Public(part), place)
                self.records.await_part(key, part)


_EVENTS: Any = Union[tuple(dict.fromkeys(event for _, event in ssa.TRANSITIONS))]  # noqa: UP007 - made from a table


def _still_needed(state: ssa.Round) -> Iterable[str]:
    """Whose submissions must be in the sum, or may come to be."""
    match state:
        case ssa.Open(entries=clients) | ssa.Closed(entries=clients) | ssa.Closing(entries=clients):
            return clients
        case ssa.Rostered(roster=clients) | ssa.Proved(roster=clients) | ssa.Verified(counted=clients):
            return clients
        case _:
            return ()
