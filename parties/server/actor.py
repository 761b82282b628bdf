"""A server's actor: it has the rounds, one after the other, and only it changes what a round's state is.

Its inbox takes the peer's messages and our own computations' results, so there is nothing to lock. Everybody else (see
`parties.server.server`) reads rounds, waits on them, and posts to the inbox.

    listener ──> conversations ────┐
    peer link ─────────────────────┼──> inbox ──> actor ──> toss ──> round ──> toss ──> …
    compute tasks ─────────────────┘

Rules: what the actor takes is recorded before it is adopted (see `parties.server.round.run`); a settled round is one
commit; where it records something and finds no room, it waits; a peer that breaks the protocol ends it, and with it the
server.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec
import trio

from fsl_async.config import RoundConfig, ServerKeys, describe_model, describe_plain, shape_of_round
from fsl_async.digests import Domain, digest
from fsl_async.errors import PeerViolationError, StorageError
from fsl_async.model_numbers import check_numbers
from fsl_async.protocols import alignment as aligning
from fsl_async.protocols import round as protocol
from fsl_async.protocols import toss as tossing
from fsl_async.protocols.machine import Event
from fsl_async.server.aggregation import CellMemory
from fsl_async.wire.codec import Received
from fsl_async.wire.messages import Abort, Conclusion, Forward, Known, Message, TossCommitment, TossReveal
from parties.concurrency import RecurringEvent
from parties.events import MessageReceived, MessageSent, PeerLost, PeerMet, Resumed, RoundOpened, RoundSettled, Warned
from parties.outcome import Aborted, Done, Model, RoundReport
from parties.server.admission import Enrolment
from parties.server.evidence import Evidence, EvidenceBook
from parties.server.history import History, Progress
from parties.server.inbox import FromPeer, Item, Mark, Met, Ours
from parties.server.peer.forwarding import Forwarded, longest_peer_message, objection, take_in
from parties.server.peer.link import PeerLink
from parties.server.peer.reconciliation import Meeting, known
from parties.server.round.assembly import RequestKey, RequestRefusedError
from parties.server.round.records import RoundRecords
from parties.server.round.room import round_bytes
from parties.server.round.run import RoundRun
from parties.server.round.terms import Terms, Tools
from parties.server.round.toss import TossRun
from parties.server.sessions import Sessions
from parties.server.setup import ServerSetup
from parties.server.waiting_store import PatientStore
from parties.status import PastRound

__all__ = ["Actor", "Resting"]

_log = logging.getLogger("parties.server")

ROUNDS_REMEMBERED = 16

SPARE_BYTES = 256 << 20
"""Memory of one round's sum that is kept for the next one's, at most."""


@dataclass(frozen=True)
class Resting:
    """No round is on, and none will be: the schedule's last is over, or the server is about to stop."""

    number: int


class Actor:
    """The one task of a server that changes anything: it has the rounds one after the other, and hears the peer.

    Attributes:
        setup: what the server is made of.
        model: the model as it stands.
        enrolment: the clients it knows.
        sessions: the trees that outlive their round, where the task's selection is fixed.
        evidence: what it saw against the protocol.
    """

    def __init__(self, setup: ServerSetup) -> None:
        self.setup = setup
        self.model = dict(setup.model)
        self._name, self._peer = f"S{setup.index}", f"S{1 - setup.index}"
        self.enrolment = Enrolment(
            self._name, setup.task.digest(), setup.registry, setup.policy, setup.store, setup.observe
        )
        self._store = PatientStore(setup.store, setup.observe)
        self.sessions = Sessions(setup.task, self._store)
        self.evidence = EvidenceBook(self._store, setup.observe)
        self._inbox_in, self._inbox = trio.open_memory_channel[Item](64)
        self._link = PeerLink(
            self._peer,
            longest_peer_message(setup.task),
            self._deliver,
            self._met,
            self._lost,
            partial(self._sent, self._peer),
            partial(self._taken, self._peer),
        )
        self._meeting = Meeting(self._name, self._link, setup.observe)
        self._memory = CellMemory(SPARE_BYTES)
        self._history = History(self._store)
        self._standing = Progress(
            task=setup.task.canonical(),
            server=setup.index,
            keys=setup.identity.public.keys,
            alignment=aligning.begin(setup.task),
        )
        self._described = describe_model(setup.task, self.model)
        check_numbers(setup.task, self.model)
        self._union: Model = {}
        self._settled_before = 0
        self._current: TossRun | RoundRun | Resting = Resting(0)
        self._tosses: list[TossRun] = []
        self._over: dict[bytes, PastRound] = {}
        self._opened = RecurringEvent()
        self._settled = RecurringEvent()
        self._winding_up = trio.Event()

    def state_name(self) -> str:
        """What the server is doing, for people."""
        match self._current:
            case RoundRun() as run:
                return f"round {run.config.number}: {type(run.state).__name__}"
            case TossRun() as toss:
                return f"round {toss.number}: {type(toss.state).__name__}, waiting for {self._peer}"
            case Resting(number=number):
                return f"resting after round {number}"

    async def _restore(self) -> None:
        """Read back what the store holds."""
        await self.enrolment.restore()
        await self.evidence.restore()
        await self.sessions.restore()
        self._standing, self.model, self._union = await self._history.open(self._standing, self.model)
        self._settled_before = self._standing.settled
        self._described = describe_model(self.setup.task, self.model)
        await self._history.sweep(self._standing.settled, self.setup.schedule.retention)
        recent = await self._history.past(self._standing.settled, ROUNDS_REMEMBERED)
        self._over = {past.report.round_id: past for past in recent}

    async def _begin(self, nursery: trio.Nursery) -> None:
        """Go on where the store has it; rounds and the actor run in a nursery that ends with the server."""
        self._nursery = nursery
        await self._begin_next()
        await self._move_on()
        nursery.start_soon(self._act)

    async def _give_up_restored(self, run: RoundRun) -> None:
        """Give up a round that a copy had begun which became our store: another sum of it may have been opened."""
        accepted = protocol.GaveUp in protocol.ACCEPTS[type(run.state)]
        if accepted and await self._history.gives_up(self._standing.settled):
            await run.take(protocol.GaveUp("its store was made of a copy, which does not say what was said since"))

    async def _begin_next(self) -> None:
        """Toss for the round after the last settled one, or go on with it."""
        number, last = self._standing.settled + 1, self.setup.schedule.rounds
        if self._winding_up.is_set() or (last and number > last):
            self._current = Resting(self._standing.settled)
            self._tosses = self._tosses or await TossRun.last(self._store, self._link)
            return
        model = digest(Domain.MODEL, *(entry.digest for entry in self._described))
        setup = self.setup
        toss = await TossRun.begin(setup.index, number, model, setup.randomness, self._store, self._link)
        self._tosses = [*(self._tosses[-1:] or await TossRun.last(self._store, self._link)), toss]
        self._current = toss
        await self._open_if_tossed(toss)

    async def _open_if_tossed(self, toss: TossRun) -> None:
        if not isinstance(toss.state, tossing.Tossed):
            return
        terms = await self._terms(toss.state)
        run: RoundRun = await self._nursery.start(self._live, terms)
        self._current = run
        await self._warn_without_room(run)
        self.setup.observe(
            RoundOpened(number=toss.number, round_id=run.round_id, phase=run.config.phase, closes_at=terms.closes_at)
        )
        await self._give_up_restored(run)
        if not isinstance(run.state, protocol.Open) or run.status().submissions:
            self.setup.observe(Resumed(number=toss.number, state=type(run.state).__name__))
        self._opened.set()

    async def _warn_without_room(self, run: RoundRun) -> None:
        """Tell the operator in time that a round's submissions may not all be stored."""
        clients = min(self.setup.schedule.clients, self.setup.task.max_clients)
        try:
            await self.setup.store.check_room(round_bytes(run.config.shape, clients))
        except StorageError as error:
            explanation = f"round {run.config.number} opens without room for {clients} submissions: {error}"
            self.setup.observe(Warned(about="store", explanation=explanation))

    async def _terms(self, tossed: tossing.Tossed) -> Terms:
        """What the round begins with that this toss opens."""
        setup, number = self.setup, tossed.half.number
        if setup.task.selection != "fixed" or not self._standing.session:
            self._standing = msgspec.structs.replace(self._standing, session=number, hash_seed=tossed.hash_seed)
        own, peer = setup.identity.public.keys, setup.peer.keys
        servers: tuple[ServerKeys, ServerKeys] = (own, peer) if setup.index == 0 else (peer, own)
        standing = self._standing
        shape = shape_of_round(setup.task, standing.phase, standing.union, self._described)
        config = RoundConfig(
            task=setup.task,
            number=number,
            session=standing.session,
            hash_seed=standing.hash_seed,
            toss=tossed.commitments,
            servers=servers,
            model=self._described,
            phase=standing.phase,
            union=standing.union,
            plain=describe_plain(shape, self.model, self._union),
        )
        opened_at = await self._history.opened_at(number, setup.clock())
        return Terms(
            config=config,
            server=setup.index,
            proof_key=tossed.proof_key,
            model=self.model,
            union=self._union,
            opened_at=opened_at,
            closes_at=opened_at + setup.schedule.seconds,
            enough=setup.schedule.clients,
        )

    async def _live(self, terms: Terms, *, task_status: trio.TaskStatus[RoundRun]) -> None:
        """A round's nursery, from its beginning (or a restart) until it is settled."""
        setup = self.setup
        async with trio.open_nursery() as nursery:
            tools = Tools(
                nursery=nursery,
                lane=setup.lane,
                memory=self._memory,
                evidence=self.evidence,
                known=self.enrolment.__contains__,
                randomness=setup.randomness,
                link=self._link,
                report=self._report,
                observe=setup.observe,
                clock=setup.clock,
                grace=setup.schedule.grace,
                patience=setup.schedule.patience,
            )
            records = RoundRecords(setup.store, terms.config, partial(self.sessions.of, terms.config), own=self._store)
            run = RoundRun(terms, records, tools)
            await run.begin()
            task_status.started(run)
            await run.settled.wait()
            nursery.cancel_scope.cancel()
        run.release()

    async def _move_on(self) -> None:
        """When a round is settled, begin the next."""
        while isinstance(run := self._current, RoundRun) and run.settled.is_set():
            await self._settle(run)
            await self._begin_next()

    async def _settle(self, run: RoundRun) -> None:
        """Make a round's end last, in one commit."""
        past = run.past()
        done = isinstance(past.report.ending, Done)
        alignment = aligning.step(self._standing.alignment, self._alignment_event(run))
        union = run.union if run.config.phase == "union" and done else self._union
        standing = msgspec.structs.replace(
            self._standing,
            settled=run.config.number,
            alignment=alignment,
            done=self._standing.done + done,
            aborted=self._standing.aborted + (not done),
        )
        changes = []
        if self.setup.task.selection == "fixed":
            changes = await self.sessions.settle(
                run.config.epoch, run.config.phase, past.report.counted, run.records.submission
            )
        standing, settling = self._history.settle(standing, past, run.model, union, self.setup.schedule.retention)
        await self._store.commit(*changes, *settling, await self._tosses[-1].remembered())
        self._standing, self.model, self._union = standing, run.model, union
        self._described = describe_model(self.setup.task, self.model)
        self._over[run.round_id] = past
        for forgotten in list(self._over)[:-ROUNDS_REMEMBERED]:
            del self._over[forgotten]
        self.setup.observe(RoundSettled(past=past))
        self._settled.set()

    def _alignment_event(self, run: RoundRun) -> Event:
        if run.config.phase == "main":
            return aligning.MainSettled()
        if isinstance(run.report().ending, Aborted):
            return aligning.UnionLost()
        return aligning.UnionFound(run.report().union, stays=self.setup.task.selection == "fixed")

    # ---- the actor

    async def _act(self) -> None:
        try:
            async with self._inbox:  # whoever still has something to tell does not wait for an actor that has ended
                await self._take_all()
        except PeerViolationError as error:
            await self.evidence.keep(
                Evidence(number=self._number(), about=error.peer, kind="violation", words=str(error))
            )
            await self._link.flush()  # so that the peer hears what contradicts it, and ends as well
            raise

    async def _take_all(self) -> None:
        async for item in self._inbox:
            match item:
                case Met():
                    self._resend()
                case FromPeer() | Forwarded() if not self._meeting.listens:
                    pass
                case FromPeer(received=Received(message=Known() as theirs)):
                    await self._meeting.take(self._known(), theirs)
                case Mark(taken=taken):
                    taken.set()
                case Forwarded():
                    self._take_forward(item)
                case FromPeer(received=received):
                    await self._take_from_peer(received)
                case Ours(round_id=round_id, event=event):
                    await self._take_own(round_id, event)
            await self._move_on()

    async def _take_from_peer(self, received: Received) -> None:
        match received.message:
            case TossCommitment() | TossReveal() as message:
                await self._take_toss(message)
            case message:
                run = self._round_named(message.round_id)
                if run is None:
                    self._refuse_unknown(message.round_id)
                else:
                    await run.take_message(message, received.bulk)

    async def _take_own(self, round_id: bytes, event: Event) -> None:
        run = self._round_named(round_id)
        if run is None:
            return  # the round is over; a timer of its grace period, say, comes too late
        match event:
            case protocol.Submitted(client=client) if not run.admits(client):
                return  # the round closed in the meantime; whoever reported it finds out from the state
            case protocol.CloseRound() if not isinstance(run.state, protocol.Open):
                return
            case protocol.GaveUp() if protocol.GaveUp not in protocol.ACCEPTS[type(run.state)]:
                return  # too late: what was awaited has come
        await run.take(event)
        if run.is_full:
            await run.take(protocol.CloseRound())

    async def _take_toss(self, message: TossCommitment | TossReveal) -> None:
        number = self._number()
        if isinstance(message, TossReveal) and message.past and message.number < number:
            return  # we know how that round ended, and the peer will hear it from us
        if message.number < number - 1:
            raise PeerViolationError(
                self._peer,
                f"tosses for round {message.number} while round {number} is on: it has lost its store, or was given an "
                "older copy; no two servers can go on from there",
            )
        if message.number > number:
            raise PeerViolationError(
                self._peer,
                f"tosses for round {message.number} while round {number} is not settled here; unless it is ahead for "
                f"no reason, the store of {self._name} itself is lost or an older copy: look at that first",
            )
        for toss in self._tosses:
            if toss.number == message.number:  # of a round that is tossed: a repeat, or not what was said before
                await toss.take(message)
        if isinstance(self._current, TossRun):
            await self._open_if_tossed(self._current)

    def _number(self) -> int:
        """The round that is open, or being tossed."""
        return self._standing.settled + 1

    # ---- the peer

    async def _deliver(self, received: Received) -> None:
        """Bring a message of the peer's to the actor; a public part goes to the round's records instead."""
        message = received.message
        if not isinstance(message, Forward):
            await self._post(FromPeer(received))
            return
        if self._round_named(message.round_id) is None:
            await self._catch_up()  # what came before may open its round
        run, size = self._round_named(message.round_id), len(received.bulk)
        if run is None or objection(run.config, self.setup.index, message, size):
            await self._post(Forwarded(message, size, b""))
            return
        known = message.client in self.enrolment
        await self._post(await take_in(run, message, received.bulk, known=known))

    async def _catch_up(self) -> None:
        """Wait until the actor has taken all that has been posted so far."""
        mark = Mark()
        await self._post(mark)
        await mark.taken.wait()

    def _round_named(self, round_id: bytes) -> RoundRun | None:
        """The round that is on, if it is that one."""
        run = self._current
        return run if isinstance(run, RoundRun) and run.round_id == round_id else None

    def _take_forward(self, forwarded: Forwarded) -> None:
        """Take note of a client's public part that the peer carried."""
        message = forwarded.message
        run = self._round_named(message.round_id)
        if run is None:
            self._refuse_unknown(message.round_id)
            return  # for a round that has closed; the client hears so from its own connection
        wrong = objection(run.config, self.setup.index, message, forwarded.size)
        if wrong:
            raise PeerViolationError(self._peer, wrong)
        if not forwarded.part:
            return  # nothing was kept, and nothing is wrong: see `take_in`
        try:
            run.requests.public(RequestKey(message.client, message.purpose, message.query), forwarded.part)
        except RequestRefusedError as error:
            raise PeerViolationError(self._peer, f"forwards twice for {message.client!r}: {error}") from error

    def _refuse_unknown(self, round_id: bytes) -> None:
        """A round that is not the present one must be a past one: the peer's configurations are ours, byte for byte."""
        if round_id not in self._over:
            raise PeerViolationError(
                self._peer,
                f"speaks of a round {round_id.hex()[:16]} that is unknown here while round {self._number()} is on: "
                "its configuration is not ours; compare both servers' task files and models, and ask whether one of "
                "them has lost its store",
            )

    def _resend(self) -> None:
        """Say again what the peer may lack: that the last round was tossed and how it ended, and all of the present."""
        self._meeting.begin(self._known())
        settled = self._standing.settled
        for toss in [toss for toss in self._tosses if toss.number <= settled]:
            toss.resend_past()
        for past in list(self._over.values())[-1:]:
            self._link.post(_last_words(past.report))
        for toss in [toss for toss in self._tosses if toss.number > settled]:
            toss.resend()
        if isinstance(self._current, RoundRun):
            self._current.resend()

    def _known(self) -> Known:
        """What this server knows, for when the servers meet."""
        last = [past.report for past in self._over.values()][-1:]
        return known(self._current, self._tosses, last, self._standing.settled)

    async def _met(self) -> None:
        self.setup.observe(PeerMet())
        await self._post(Met())

    def _lost(self, explanation: str) -> None:
        self.setup.observe(PeerLost(explanation=explanation))

    async def _report(self, round_id: bytes, event: Event) -> None:
        await self._post(Ours(round_id, event))

    async def _post(self, item: Item) -> None:
        """Bring something to the actor; where that has ended the server ends, and the next one goes by the store."""
        with suppress(trio.BrokenResourceError):
            await self._inbox_in.send(item)

    # ---- what is told

    def _taken(self, sender: str, message: Message, size: int) -> None:
        self.setup.observe(MessageReceived(sender=sender, kind=type(message).__name__, size=size))

    def _sent(self, receiver: str, message: Message, size: int, bulk: int) -> None:
        self.setup.watch(self._name, receiver, message, bulk)
        self.setup.observe(MessageSent(receiver=receiver, kind=type(message).__name__, size=size))


def _last_words(report: RoundReport) -> Conclusion | Abort:
    """What a peer may have missed of a round that is over here."""
    if isinstance(report.ending, Aborted):
        return Abort(report.round_id, report.ending.explanation)
    return Conclusion(report.round_id, report.digest())
