"""A round of submissions on one server: the machine of `fsl_async.protocols.ssa`, with the retrievals beside it.

A round that finds a union is one of these, too; it answers no retrievals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final, assert_never

from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event, UnexpectedEvent
from fsl_async.wire import messages
from fsl_async.wire.peer_lists import ClientDigests, unpack_digests
from fsl_async.wire.pieces import spans_of
from fsl_async.wire.public_part import OpenedRows
from parties.events import SubmissionIn, Warned
from parties.outcome import Aborted, RoundOutcome, RoundReport, SumRefused
from parties.server.evidence import Evidence, seen_in, strangers_in
from parties.server.round.computation import Computation
from parties.server.round.conclusion import OpenedSum, difference, report_without_sum
from parties.server.round.engine import RoundStart
from parties.server.round.outbox import Outbox
from parties.server.round.places import ClientPlaces
from parties.server.round.records import RoundRecords
from parties.server.round.services import RoundServices
from parties.server.round.shares import ArrivingShare
from parties.server.round.waiting import Timers
from parties.storage.store import Change

LONG_LIST: Final = 10_000
"""Clients on a list that is judged beside the event loop: to compare 100,000 takes 0.1 to 0.3 s."""

LONG_PROOFS: Final = 100
"""The same where each proof of a bound is judged."""

LONG_BYTES: Final = 2**19
"""Bytes of a list that is read beside the event loop: four million take 0.1 s."""


class Aggregation:
    """What a round of submissions does; see `parties.server.round.run`.

    Args:
        start: what the round began with.
        records: what it keeps in the store.
        services: what it has of its server.
        outbox: what it sends to the other server.

    Attributes:
        state: the machine's.
        terms: what the machine has to know.
        retrievals: answers the clients' retrievals.
        places: which clients have a place, and whose submission is in.
    """

    machine = ssa.MACHINE
    events = ssa.RoundEvent

    def __init__(self, start: RoundStart, records: RoundRecords, services: RoundServices, outbox: Outbox) -> None:
        config = start.config
        self.state: ssa.Round = ssa.Open()
        self._steps: dict[tuple[int, int], tuple[ssa.Round, Event, ssa.Round]] = {}
        self._report: RoundReport | None = None
        self._peer_holds = 0
        self._told_held: int | None = None
        self._is_asked = False
        self._counted = (0, 0)
        self._effects: tuple[ssa.Round, tuple[ssa.Effect, ...]] | None = None
        self.terms = ssa.Terms.of(config, start.server)
        self.places = ClientPlaces(config.task.max_clients, self.admits)
        self._start = start
        self._records = records
        self._services = services
        self._outbox = outbox
        self._computation = Computation(start, records, services, outbox.over)
        self.retrievals = self._computation.retrievals
        self._arriving = ArrivingShare(self.terms.peer, config.shape, records.shares, services.lane, outbox.ask_pieces)

    # ---- how it stands

    @property
    def submissions(self) -> int:
        """How many submissions are in."""
        return self.places.entered

    @property
    def evaluated(self) -> int:
        """How many of them are in the sum."""
        return self._computation.sum.added

    @property
    def seconds(self) -> float:
        """How long adding them has taken."""
        return self._computation.sum.seconds

    @property
    def opened(self) -> OpenedSum | None:
        """What the sum has come to; None before both shares are combined."""
        return self._computation.opened

    @property
    def is_full(self) -> bool:
        """Whether as many submissions are in with both servers as close the round at once.

        A client whose submission only its carrier has would otherwise close rounds that then lack clients.
        """
        return self._fills(self.state)

    def _fills(self, state: ssa.Round) -> bool:
        if not isinstance(state, ssa.Open) or len(state.entries) < self._start.enough:
            return False
        held = self._held(state)  # which the peer carries, and so has as well
        return held + min(len(state.entries) - held, self._peer_holds) >= self._start.enough

    def _held(self, state: ssa.Open) -> int:
        """How many submissions are in of clients that the peer carries: of many, each is looked at once."""
        adopted = self.state if isinstance(self.state, ssa.Open) else ssa.Open()
        seen, held = self._counted
        held += self._of_peer(islice(adopted.entries, seen, None))
        self._counted = len(adopted.entries), held
        return held + self._of_peer(islice(state.entries, len(adopted.entries), None))

    def _of_peer(self, clients: Iterable[str]) -> int:
        """How many of some clients the peer carries."""
        return sum(self._start.config.carrier(client) != self.terms.server for client in clients)

    def tell_held(self) -> None:
        """Tell the peer how many of its clients' submissions are here, if one of the servers has enough to close."""
        if isinstance(state := self.state, ssa.Open) and (self._is_asked or len(state.entries) >= self._start.enough):
            held = self._held(state)
            if held != self._told_held:
                self._told_held = held
                self._outbox.tell_held(held)

    @property
    def takes_requests(self) -> bool:
        """Whether any client's request can still come in."""
        return isinstance(self.state, ssa.Open | ssa.Closing)

    def submitters(self) -> frozenset[str]:
        """The clients whose submissions are in."""
        return self.places.names()

    def admits(self, client: str) -> bool:
        """Whether a submission of this client can still come in."""
        if not self._start.is_drawn(client):
            return False
        match self.state:
            case ssa.Open():
                return True
            case ssa.Closing(theirs=theirs):
                return client in theirs
            case _:
                return False

    def serves(self, client: str) -> bool:
        """Whether this client's requests are answered: its submission can still come in, or is in already."""
        return self.admits(client) or self.places.has_entered(client)

    # ---- how it ended

    def outcome(self) -> RoundOutcome:
        """The sum of a round that is done, and was not refused.

        Raises:
            MisuseError: there is none.
        """
        if self.opened is None or isinstance(self.opened.ending, SumRefused):
            number = self._start.config.number
            raise MisuseError(f"round {number} has no sum: it was aborted, or its sum was refused")
        return self.opened.outcome

    @property
    def concluded(self) -> bytes:
        """The digest of the outcome at which this server has arrived; empty where the round was aborted."""
        return self.state.outcome if isinstance(self.state, ssa.Done | ssa.Differed) else b""

    def report(self) -> RoundReport:
        """The public account of a settled round, made once: all its clients ask for it.

        Raises:
            UnexpectedEvent: it is not settled.
        """
        if self._report is None:
            self._report = self._settled()
        return self._report

    def _settled(self) -> RoundReport:
        match self.state, self.opened:
            case ssa.Aborted(explanation=explanation), _:
                return report_without_sum(self._start.config, Aborted(explanation))
            case ssa.Done() | ssa.Differed(), opened if opened is not None:
                return opened.report(self._start.config)
        raise UnexpectedEvent(self.state, ssa.CloseRound(), ssa.ACCEPTS)

    def release(self) -> None:
        """Free the sum's memory."""
        self._computation.sum.release()

    # ---- what its run does

    async def foresee(self, event: Event) -> None:
        """Work out beforehand, beside the event loop, where an event leads, if that takes long.

        The machine stays what it is: nothing but the actor changes the state, and the actor waits for this.
        """
        long = LONG_LIST if self.terms.bound is None else LONG_PROOFS
        match event:
            case ssa.PeerRoster(entries=listed) | ssa.PeerProofs(proofs=listed) if len(listed) > long:
                self._steps.clear()
                await self._services.lane.run(partial(self._step, self.state, event))

    def after(self, event: Event, *more: Event) -> ssa.Round:
        """The state to which events lead: asked for several times while they are taken, and worked out once.

        To judge the proofs of ten thousand clients takes seconds.
        """
        if (id(self.state), id(event)) not in self._steps:
            self._steps.clear()
        state = self.state
        for each in (event, *more):
            state = self._step(state, each)
        return state

    def _step(self, state: ssa.Round, event: Event) -> ssa.Round:
        key = id(state), id(event)
        if key not in self._steps:  # which keeps both alive, so that no others have their names
            self._steps[key] = state, event, ssa.step(state, event, self.terms)
        return self._steps[key][2]

    def together(self, submitted: Sequence[ssa.Submitted]) -> list[ssa.Submitted]:
        """Those of these submissions that can be recorded at once, in order; the others come too late.

        They end with the one that fills the round, or that completes the list of the other server.
        """
        state, entered = self.state, list[ssa.Submitted]()
        self._steps.clear()
        for event in submitted:
            if not self.admits(event.client) or event.client in _entries(state):
                continue
            entered.append(event)
            before, state = state, self._step(state, event)
            if type(state) is not type(before) or self._fills(state):
                break
        return entered

    def adopt(self, event: Event) -> None:
        """Take an event that is recorded."""
        before, self.state = self.state, self._step(self.state, event)
        if isinstance(event, ssa.Submitted):
            self.places.enter(event.client, event.digest)
        if type(self.state) is not type(before):
            self.places.wake()
        if self.state.reveals:
            self._services.ledger.adopt(self._start.config.number)
        if isinstance(self.state, ssa.Differed):
            self._computation.withdraw(difference(self._start.config, self.terms.server, self.state))

    async def replay(self, event: Event) -> None:
        """Take an event of before a restart; an update that has been applied is formed once more."""
        before = self.state
        self.adopt(event)
        if isinstance(before, ssa.Combined):
            for effect in ssa.effects(before, self.terms):
                if isinstance(effect, ssa.Apply):
                    await self._computation.open(effect)

    def begin(self) -> None:
        """Begin to compute, on the submissions that are in, and on whatever comes."""
        self._computation.begin(ssa.needed_in(self.state))

    def seen(self, event: Event) -> Iterator[Evidence | Warned]:
        """What an event, which is about to be taken, shows about clients."""
        number, peer = self._start.config.number, self.terms.peer
        yield from seen_in(self.state, event, number, self.terms)
        yield from strangers_in(self.state, event, number, peer, self._services.known)

    def changes(self, event: Event) -> list[Change]:
        """What is stored together with an event: nothing with a submission, which is stored."""
        if isinstance(event, ssa.Submitted):
            return []
        config, changes = self._start.config, self._computation.own_changes(event)
        if self.after(event).reveals:
            changes += self._services.ledger.changes(config.number, config.round_id())
        return changes

    def taken(self, event: Event) -> None:
        """Go on with what an event has brought besides the new state."""
        if isinstance(event, ssa.Submitted):
            self._computation.sum.put(event.client)
            number = self._start.config.number
            self._services.observe(SubmissionIn(number=number, client=event.client, total=self.places.entered))

    def effects(self) -> tuple[ssa.Effect, ...]:
        """What the state asks for; formed once, because it may be lists of all clients."""
        if self._effects is None or self._effects[0] is not self.state:
            self._effects = self.state, ssa.effects(self.state, self.terms)
        return self._effects[1]

    def perform(self, effect: ssa.Effect, timers: Timers) -> None:
        """Do it."""
        match effect:
            case ssa.Send():
                self._outbox.send(effect)
            case ssa.AwaitGrace():
                timers.start_grace()
            case ssa.Evaluate() | ssa.CountRows() | ssa.Sum() | ssa.Apply():
                self._computation.perform(effect)
            case _:
                assert_never(effect)

    def resend(self) -> None:
        """Send again what the state says the peer may lack."""
        self._told_held = None
        self.tell_held()
        for effect in self.effects():
            if isinstance(effect, ssa.Send):
                self._outbox.send(effect)

    async def read(self, message: messages.OfRound, bulk: memoryview) -> Event | None:
        """The event that a message of the peer's is; a share of the sum or of the counts is stored first.

        None where it is no event by itself: how many submissions the peer holds, the list of its share, or a piece that
        is not the last.

        Raises:
            PeerViolationError: it contradicts what the peer said before, or comes where no honest server sends it.
        """
        peer, most = self.terms.peer, self._start.config.task.max_clients
        match message:
            case messages.Held(clients=clients):
                self._peer_holds, self._is_asked = clients, True
                self.tell_held()
                return None
            case messages.RosterList():
                entries = await self._unpacked(partial(unpack_digests, bulk, most, peer), bulk)
                if others := sorted(client for client in entries if not self._start.is_drawn(client)):
                    raise PeerViolationError(peer, f"lists {others[0]!r}, which was not drawn for this round")
                return ssa.PeerRoster(entries)
            case messages.Proofs():
                unpack = partial(unpack_digests, bulk, most, peer, self.terms.proof_bytes)
                return ssa.PeerProofs(await self._unpacked(unpack, bulk))
            case messages.RowCounts():
                return await self._read_counts(bulk)
            case messages.Commitment(commitment=commitment):
                return ssa.PeerCommitment(commitment)
            case messages.Share() if isinstance(self.state, ssa.BEFORE_REVEALED):
                state = type(self.state).__name__
                raise PeerViolationError(
                    peer, f"revealed its share in state {state}, before both commitments were exchanged"
                )
            case messages.Share(nonce=nonce):
                spans = spans_of(self._start.config.shape, await self._opened_rows())
                listed = self._arriving.listed(nonce, bulk, spans)
                if self.after(listed.said) != self.state:  # judged before any piece is asked for
                    return await self._arriving.begin(listed)
                return listed.said
            case messages.SharePiece(place=place):
                return await self._arriving.take(place, bulk)
            case messages.AskPieces(first=first):
                await self._send_pieces(first)
                return None
            case messages.Conclusion(outcome=outcome):
                return ssa.PeerConclusion(outcome)
            case messages.Abort(explanation=explanation):
                return ssa.PeerAbort(explanation)
            case messages.Closing():
                raise PeerViolationError(peer, "closes a round of submissions as if it only served retrievals")
            case _:
                assert_never(message)

    async def _send_pieces(self, first: int) -> None:
        peer, state = self.terms.peer, self.state
        if not isinstance(state, ssa.Revealed | ssa.Combined | ssa.Concluded):
            raise PeerViolationError(peer, f"asks for pieces of our share in state {type(state).__name__}")
        if not await self._outbox.send_pieces(state.share, first):
            raise PeerViolationError(peer, "asks twice for the pieces of our share")

    async def _unpacked(self, unpack: Callable[[], ClientDigests], bulk: memoryview) -> ClientDigests:
        """A list of the peer's, read."""
        return await self._services.lane.run(unpack) if len(bulk) > LONG_BYTES else unpack()

    async def _read_counts(self, bulk: memoryview) -> Event:
        peer, state = self.terms.peer, type(self.state).__name__
        if not self.terms.contributors:
            raise PeerViolationError(peer, "sends counts in a task that does not count contributors")
        if isinstance(self.state, ssa.BEFORE_VERIFIED):
            raise PeerViolationError(peer, f"sent its counts in state {state}, before proofs were exchanged")
        said = ssa.PeerCounts(self._records.counts_name(bulk, peer))
        if self.after(said) != self.state:  # judged before they are stored
            await self._records.keep_counts(bulk)
        return said

    async def _opened_rows(self) -> OpenedRows:
        """The rows that a share of the sum is of; before and after it is awaited, its digest decides."""
        match self.state:
            case ssa.Revealed(counts=counts) | ssa.Combined(counts=counts):
                return await self._computation.opened_rows(counts)
            case _:
                return self._computation.latest_rows


def _entries(state: ssa.Round) -> Mapping[str, bytes]:
    """Whose submissions are in, while more can come."""
    return state.entries if isinstance(state, ssa.Open | ssa.Closing) else {}
