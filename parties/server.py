"""A server: one actor that owns the rounds, and a task for every connection that brings it work.

The actor's inbox takes the peer's messages and our own computations' results; only the actor changes a round's state,
so there is nothing to lock. Connection tasks (see `parties.conversation`) read rounds, wait on them, and post to the
inbox.

    listener ──> conversations ────┐
    peer link ─────────────────────┼──> inbox ──> actor ──> toss ──> round ──> toss ──> …
    compute tasks ─────────────────┘

A server that is started again with the same store goes on where it was: what was acknowledged is there, and what was
said is said again in the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import msgspec
import trio

from fsl_async.alignment import union_task
from fsl_async.codec import Received, bulk_overhead
from fsl_async.config import RoundConfig, ServerKeys, describe_model
from fsl_async.digests import Domain, digest
from fsl_async.errors import FslError, MisuseError, PeerViolationError, StorageError
from fsl_async.messages import Abort, Conclusion, Forward, Message, Refused, TossCommitment, TossReveal
from fsl_async.protocols import alignment as aligning
from fsl_async.protocols import round as protocol
from fsl_async.protocols import toss as tossing
from fsl_async.protocols.client import RETRIEVALS_PER_ROUND
from fsl_async.protocols.machine import Event
from fsl_async.public_part import Layout, Trees, share_bytes
from fsl_async.task import Task
from fsl_async.upload import public_digest
from parties.conversation import Conversations
from parties.desk import RequestKey, RequestRefusedError
from parties.enrolment import DismissedError, Enrolment
from parties.evidence import Evidence, EvidenceBook
from parties.happenings import (
    BudgetMoved,
    ClientLeft,
    ClientMet,
    ConnectionFailed,
    MessageReceived,
    MessageSent,
    PastRound,
    PeerLost,
    PeerMet,
    RequestRefused,
    Resumed,
    RoundOpened,
    RoundSettled,
    ServerStanding,
    Warned,
)
from parties.history import History, Standing
from parties.identity import PublicIdentity
from parties.link import PeerLink
from parties.outcome import ENTRY_BYTES, RoundOutcome, RoundReport
from parties.patient_store import PatientStore
from parties.reception import Reception
from parties.room import round_bytes
from parties.round_records import RoundRecords
from parties.round_run import Model, RoundRun, Terms, Tools
from parties.server_setup import Schedule, ServerSetup, Watch, silent
from parties.sessions import Sessions
from parties.store import DiskFullError, StoreLostError
from parties.tossing import TossRun
from transport import Channel, HandshakeSettings, Limits, NoPlace, Refusal, Role, Service

__all__ = ["Schedule", "Server", "ServerSetup", "Watch", "silent"]

_log = logging.getLogger("parties.server")

ROUNDS_REMEMBERED = 16

PEER_CONNECTIONS = 2
"""One in use, and one that is about to end it."""


@dataclass(frozen=True)
class _FromPeer:
    received: Received


@dataclass(frozen=True)
class _Forwarded:
    """A client's public part that the peer has carried, by its size and its digest."""

    message: Forward
    size: int
    part: bytes


@dataclass(frozen=True)
class _Met:
    """The servers are connected (again)."""


@dataclass(frozen=True)
class _Ours:
    """An event of our own for a round."""

    round_id: bytes
    event: Event


_Item: TypeAlias = _FromPeer | _Forwarded | _Met | _Ours


@dataclass(frozen=True)
class _Resting:
    """No round is on, and none will be: the schedule's last is over, or the server is about to stop."""

    number: int


class Server:
    """S0 or S1.

    Attributes:
        setup: what it is made of.
        model: the model as it stands.
        enrolment: the clients it knows.
        sessions: the trees that outlive their round, where the task's selection is fixed.
        evidence: what it saw against the protocol.
        visitors: how many clients are connected.
    """

    def __init__(self, setup: ServerSetup) -> None:
        self.setup = setup
        self.model = dict(setup.model)
        self._name = f"S{setup.index}"
        self.enrolment = Enrolment(
            self._name, setup.task.digest(), setup.registry, setup.policy, setup.store, setup.observe
        )
        self._peer = f"S{1 - setup.index}"
        self._inbox_in, self._inbox = trio.open_memory_channel[_Item](64)
        self._link = PeerLink(
            self._peer,
            _longest_peer_message(setup.task),
            self._deliver,
            self._met,
            self._lost,
            partial(self._sent, self._peer),
            partial(self._taken, self._peer),
        )
        self._described = describe_model(setup.task, self.model)
        self._store = PatientStore(setup.store, setup.observe)
        self._history = History(self._store)
        self._standing = Standing(
            task=setup.task.canonical(),
            server=setup.index,
            keys=setup.identity.public.keys,
            alignment=aligning.begin(setup.task),
        )
        self._union: Model = {}
        self._settled_before = 0
        self._current: TossRun | RoundRun | _Resting = _Resting(0)
        self._tosses: list[TossRun] = []
        self._over: dict[bytes, PastRound] = {}
        self._opened = trio.Event()
        self._settled = trio.Event()
        self._left = trio.Event()
        self._store_failed, self._store_failure = trio.open_memory_channel[StoreLostError](1)
        self._winding_up = trio.Event()
        reception = Reception(self)
        self._conversations = Conversations(
            reception, reception.longest_bulk, setup.conversations, self._taken, self._answered, self._budget_moved
        )
        self.sessions = Sessions(setup.task, self._store)
        self.evidence = EvidenceBook(self._store, setup.observe)
        self.visitors = 0

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the address once clients can connect.

        Raises:
            PeerViolationError: the other server broke the protocol; nothing was revealed that it should not see.
            StorageError: what must not be forgotten cannot be read, or cannot be kept any more.
        """
        await self._restore()
        if self.enrolment.warning:
            _log.warning("%s: %s", self._name, self.enrolment.warning)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._end_with_the_store)
            await self._begin_next()
            await self._move_on()
            nursery.start_soon(self._act)
            service = Service(
                self.handshake(), self._admit_in_sight, self._serve_in_sight, self._limits(), self._tell_failure
            )
            address = await nursery.start(self.setup.transport.listen, self.setup.address, service)
            if self.setup.index == 1:
                nursery.start_soon(self._link.keep_dialling, self._dial_peer)
            task_status.started(address)

    # ---- for connection tasks

    def handshake(self) -> HandshakeSettings:
        """What this server brings to every handshake."""
        role = Role.SERVER_0 if self.setup.index == 0 else Role.SERVER_1
        return HandshakeSettings(
            private_key=self.setup.identity.channel_secret,
            role=role,
            kind=self.setup.kind,
            randomness=self.setup.randomness,
            payload=self.setup.task.digest(),
        )

    def open_round(self, round_id: bytes, client: str) -> RoundRun:
        """The round of that name, if it is open for this client, or has its submission: the same again is answered.

        Raises:
            RequestRefusedError: it is not open (any more).
        """
        run = self._current
        if isinstance(run, RoundRun) and run.round_id == round_id and (run.admits(client) or run.has(client)):
            return run
        raise RequestRefusedError.because("round-closed", "that round is not open; enter the next one")

    def running(self) -> list[RoundRun]:
        """The round that is on; none between rounds."""
        return [self._current] if isinstance(self._current, RoundRun) else []

    async def next_round(self, after: int) -> RoundRun:
        """Wait for an open round with a number above `after`."""
        while True:
            run = self._current
            if isinstance(run, RoundRun) and run.config.number > after and isinstance(run.state, protocol.Open):
                return run
            await self._opened.wait()

    async def settled(self, round_id: bytes) -> RoundReport:
        """Wait until a round is settled, and return its account.

        Raises:
            RequestRefusedError: it is unknown, or too long ago.
        """
        run = self._current
        if isinstance(run, RoundRun) and run.round_id == round_id:
            await run.settled.wait()
            return run.report()
        for past in [self._over[round_id]] if round_id in self._over else await self._history.find(round_id):
            return past.report
        raise RequestRefusedError.because("round-closed", "that round is unknown here")

    async def post_event(self, round_id: bytes, event: Event) -> None:
        """Take an event of our own to the actor."""
        await self._report(round_id, event)

    def sign(self, domain: Domain, *parts: bytes) -> bytes:
        """Sign a statement."""
        return self.setup.identity.sign(domain, *parts)

    # ---- for whoever runs the server

    async def close_round(self) -> RoundOutcome:
        """Close the open round now and wait for its sum.

        Raises:
            FslError: the round was aborted; the message says why.
        """
        run = await self.next_round(0)
        await self._report(run.round_id, protocol.CloseRound())
        return await self.settled_outcome(run)

    async def settled_outcome(self, run: RoundRun) -> RoundOutcome:
        """Wait for a round's sum.

        Raises:
            FslError: the round was aborted; the message says why.
        """
        while run.round_id not in self._over:
            await self._settled.wait()
        aborted = run.report().aborted
        if aborted:
            raise FslError(f"round {run.config.number} was aborted: {aborted}")
        return run.outcome()

    async def settlements(self) -> AsyncGenerator[RoundReport, None]:
        """The account of every round settled since this server was started; ends with the schedule's last."""
        number = self._settled_before
        while not (self.setup.schedule.rounds and number >= self.setup.schedule.rounds):
            fresh = [past.report for past in self._over.values() if past.report.number > number]
            if not fresh:
                await self._settled.wait()
                continue
            number = fresh[0].number
            yield fresh[0]

    async def abort_round(self, number: int, explanation: str) -> RoundReport:
        """Give the running round up, and wait until it is over.

        Raises:
            MisuseError: no round of that number is running, or it cannot be given up any more.
        """
        run = self._current
        if not isinstance(run, RoundRun) or run.config.number != number:
            raise MisuseError(f"round {number} is not running; {self._name} is at: {self.state_name()}")
        if protocol.GaveUp not in protocol.ACCEPTS[type(run.state)]:
            raise MisuseError(
                f"round {number} is in state {type(run.state).__name__}: both servers may have committed to their "
                "shares, and who has committed does not give up any more; it ends when both servers are connected"
            )
        await self._report(run.round_id, protocol.GaveUp(explanation))
        while run.round_id not in self._over:
            await self._settled.wait()
        return run.report()

    async def wind_up(self, seconds: float) -> str:
        """Open no further round, and wait at most so many seconds for the one that is on its way to its sum.

        A round that still waits for clients, or is not over by then, is parked: it goes on when the server is started
        again with the same store.

        Returns:
            What the server was doing at the end, for people.
        """
        self._winding_up.set()
        run = self._current
        if isinstance(run, RoundRun) and not isinstance(run.state, protocol.Open):
            with trio.move_on_after(seconds):
                while run.round_id not in self._over:
                    await self._settled.wait()
        return self.state_name()

    def standing(self) -> ServerStanding:
        """How the server stands, for people."""
        run = self._current
        return ServerStanding(
            server=self.setup.index,
            task=self.setup.task.name,
            peer_connected=self._link.connected,
            clients_connected=self.visitors,
            round=run.standing() if isinstance(run, RoundRun) else None,
            waiting_for=self.state_name(),
            rounds_done=self._standing.done,
            rounds_aborted=self._standing.aborted,
        )

    async def past_rounds(self) -> list[PastRound]:
        """All rounds that are over, in order."""
        return await self._history.past()

    async def drain(self, seconds: float) -> None:
        """Wait until every client has gone, to hear what became of the last round; at most so many seconds."""
        with trio.move_on_after(seconds):
            while self.visitors:
                await self._left.wait()

    @contextmanager
    def visit(self, client: str) -> Iterator[None]:
        """Count a client's connection."""
        self.visitors += 1
        self.setup.observe(ClientMet(client=client))
        try:
            yield
        finally:
            self.visitors -= 1
            self.setup.observe(ClientLeft(client=client))
            left, self._left = self._left, trio.Event()
            left.set()

    def state_name(self) -> str:
        """What the server is doing, for people."""
        match self._current:
            case RoundRun() as run:
                return f"round {run.config.number}: {type(run.state).__name__}"
            case TossRun() as toss:
                return f"round {toss.number}: {type(toss.state).__name__}, waiting for {self._peer}"
            case _Resting(number=number):
                return f"resting after round {number}"

    # ---- coming and going

    async def _restore(self) -> None:
        """Read back what the store holds."""
        await self.enrolment.restore()
        await self.evidence.restore()
        await self.sessions.restore()
        self._standing, self.model, self._union = await self._history.open(self._standing, self.model)
        self._settled_before = self._standing.settled
        self._described = describe_model(self.setup.task, self.model)
        await self._history.sweep(self._standing.settled, self.setup.schedule.retention)
        recent = await self._history.recent(ROUNDS_REMEMBERED)
        self._over = {past.report.round_id: past for past in recent}

    async def _begin_next(self) -> None:
        """Toss for the round after the last settled one, or go on with it."""
        number, last = self._standing.settled + 1, self.setup.schedule.rounds
        if self._winding_up.is_set() or (last and number > last):
            self._current = _Resting(self._standing.settled)
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
        if not isinstance(run.state, protocol.Open) or run.standing().submissions:
            self.setup.observe(Resumed(number=toss.number, state=type(run.state).__name__))
        opened, self._opened = self._opened, trio.Event()
        opened.set()

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
        alignment = self._standing.alignment
        config = RoundConfig(
            task=setup.task,
            number=number,
            session=self._standing.session,
            hash_seed=self._standing.hash_seed,
            toss=tossed.commitments,
            servers=servers,
            model=self._described,
            phase="union" if isinstance(alignment, aligning.Seeking) else "main",
            union=alignment.union if isinstance(alignment, aligning.Aligned) else (),
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
                evidence=self.evidence,
                randomness=setup.randomness,
                link=self._link,
                report=self._report,
                observe=setup.observe,
                clock=setup.clock,
                grace=setup.schedule.grace,
                patience=setup.schedule.patience,
            )
            records = RoundRecords(setup.store, terms.config, self.sessions.of, own=self._store)
            run = RoundRun(terms, records, tools)
            await run.begin()
            task_status.started(run)
            await run.settled.wait()
            nursery.cancel_scope.cancel()

    async def _move_on(self) -> None:
        """When a round is settled, begin the next."""
        while isinstance(run := self._current, RoundRun) and run.settled.is_set():
            await self._settle(run)
            await self._begin_next()

    async def _settle(self, run: RoundRun) -> None:
        """Make a round's end last, in one commit."""
        past, aborted = run.past(), bool(run.report().aborted)
        alignment = aligning.step(self._standing.alignment, self._alignment_event(run))
        union = run.union if run.config.phase == "union" and not aborted else self._union
        standing = msgspec.structs.replace(
            self._standing,
            settled=run.config.number,
            alignment=alignment,
            done=self._standing.done + (not aborted),
            aborted=self._standing.aborted + aborted,
        )
        changes = []
        if self.setup.task.selection == "fixed":
            changes = await self.sessions.settle(
                run.config.epoch, run.config.phase, run.counted(), run.records.submission
            )
        standing, settling = self._history.settle(standing, past, run.model, union, self.setup.schedule.retention)
        await self._store.commit(*changes, *settling, await self._tosses[-1].remembered())
        self._standing, self.model, self._union = standing, run.model, union
        self._described = describe_model(self.setup.task, self.model)
        self._over[run.round_id] = past
        for forgotten in list(self._over)[:-ROUNDS_REMEMBERED]:
            del self._over[forgotten]
        self.setup.observe(RoundSettled(past=past))
        settled, self._settled = self._settled, trio.Event()
        settled.set()

    def _alignment_event(self, run: RoundRun) -> Event:
        if run.config.phase == "main":
            return aligning.MainSettled()
        if run.report().aborted:
            return aligning.UnionLost()
        return aligning.UnionFound(run.found_union(), stays=self.setup.task.selection == "fixed")

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
                case _Met():
                    self._resend()
                case _Forwarded():
                    self._take_forward(item)
                case _FromPeer(received=received):
                    await self._take_from_peer(received)
                case _Ours(round_id=round_id, event=event):
                    await self._take_own(round_id, event)
            await self._move_on()

    async def _take_from_peer(self, received: Received) -> None:
        match received.message:
            case TossCommitment() | TossReveal() as message:
                await self._take_toss(message)
            case message:
                run = self._current
                if isinstance(run, RoundRun) and run.round_id == message.round_id:
                    await run.take_message(message, received.bulk)
                else:
                    self._refuse_unknown(message.round_id)

    async def _take_own(self, round_id: bytes, event: Event) -> None:
        run = self._current
        if not isinstance(run, RoundRun) or run.round_id != round_id:
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
                self._peer, f"tosses for round {message.number} while round {number} is not settled"
            )
        if isinstance(self._current, TossRun) and message.number == number:
            await self._current.take(message)
            await self._open_if_tossed(self._current)
        # else a repeat from before the servers met again

    def _number(self) -> int:
        """The round that is open, or being tossed."""
        return self._standing.settled + 1

    # ---- the peer

    async def _deliver(self, received: Received) -> None:
        """Bring a message of the peer's to the actor; a public part goes into the store on its way, not to it."""
        message = received.message
        if not isinstance(message, Forward):
            await self._post(_FromPeer(received))
            return
        part, run = public_digest(received.bulk), self._current
        forwarded = _Forwarded(message, len(received.bulk), part)
        if isinstance(run, RoundRun) and not self._objection(run, forwarded):
            key = RequestKey(message.client, message.purpose, message.query)
            if not run.desk.has_public(key, part):
                await run.records.keep_part(key, part, received.bulk)
        await self._post(forwarded)

    def _take_forward(self, forwarded: _Forwarded) -> None:
        """Take note of a client's public part that the peer carried."""
        run, message = self._current, forwarded.message
        if not isinstance(run, RoundRun) or run.round_id != message.round_id:
            self._refuse_unknown(message.round_id)
            return  # for a round that has closed; the client hears so from its own connection
        objection = self._objection(run, forwarded)
        if objection:
            raise PeerViolationError(self._peer, objection)
        if message.client not in self.enrolment:
            _log.warning("%s forwards for %r, who is not known here: not counted", self._peer, message.client)
            return  # no violation: a client may be known to one server alone, and must not stop both by it
        try:
            run.desk.public(RequestKey(message.client, message.purpose, message.query), forwarded.part)
        except RequestRefusedError as error:
            raise PeerViolationError(self._peer, f"forwards twice for {message.client!r}: {error}") from error

    def _objection(self, run: RoundRun, forwarded: _Forwarded) -> str:
        """What is wrong with a public part that the peer forwards; empty where nothing is."""
        message = forwarded.message
        if run.config.carrier(message.client) == self.setup.index:
            return f"forwards for {message.client!r}, whose carrier it is not"
        if message.query not in (range(1, RETRIEVALS_PER_ROUND + 1) if message.purpose == "retrieve" else (0,)):
            return f"forwards a {message.purpose} numbered {message.query}"
        sizes = _part_sizes(run.config.shape, message.purpose)
        if forwarded.size not in sizes:
            return f"forwards a {message.purpose} of {forwarded.size} bytes, the round implies {sorted(sizes)}"
        return ""

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
        settled = self._standing.settled
        for toss in [toss for toss in self._tosses if toss.number <= settled]:
            toss.resend_past()
        for past in list(self._over.values())[-1:]:
            self._link.post(_last_words(past.report))
        for toss in [toss for toss in self._tosses if toss.number > settled]:
            toss.resend()
        if isinstance(self._current, RoundRun):
            self._current.resend()

    async def _met(self) -> None:
        self.setup.observe(PeerMet())
        await self._post(_Met())

    def _lost(self, explanation: str) -> None:
        self.setup.observe(PeerLost(explanation=explanation))

    async def _report(self, round_id: bytes, event: Event) -> None:
        await self._post(_Ours(round_id, event))

    async def _post(self, item: _Item) -> None:
        """Bring something to the actor; where that has ended the server ends, and the next one goes by the store."""
        with suppress(trio.BrokenResourceError):
            await self._inbox_in.send(item)

    # ---- connections

    async def _end_with_the_store(self) -> None:
        """End the server when a connection's task finds that nothing can be kept any more."""
        raise await self._store_failure.receive()

    @contextmanager
    def _in_sight(self) -> Iterator[None]:
        """Tell the server of a lost store: a listener takes every error for one of its connection alone."""
        try:
            yield
        except* StoreLostError as lost:
            with suppress(trio.WouldBlock):  # it has been told
                self._store_failed.send_nowait(StoreLostError(str(_first(lost))))
            raise

    async def _serve_in_sight(self, channel: Channel) -> None:
        with self._in_sight():
            await self._serve(channel)

    async def _admit_in_sight(self, key: bytes, payload: bytes) -> bytes | Refusal:
        with self._in_sight():
            try:
                return await self._admit(key, payload)
            except DiskFullError as error:
                self.setup.observe(Warned(about="store", explanation=str(error)))
                return NoPlace(f"{self._name} cannot store who you are at present: its disk is full")

    def _tell_failure(self, origin: str, error: FslError) -> None:
        self.setup.observe(ConnectionFailed(origin=origin, kind=type(error).__name__, explanation=str(error)))

    async def _dial_peer(self) -> Channel:
        return await self.setup.transport.dial(
            self.setup.peer_address, self.setup.peer.channel, self.handshake(), self._check_peer
        )

    def _check_peer(self, payload: bytes) -> None:
        if payload != self.setup.task.digest():
            raise MisuseError(self._other_task(payload))

    def _other_task(self, payload: bytes) -> str:
        return (
            f"{self._peer} serves another task: its digest is {payload.hex()[:16]}…, ours is "
            f"{self.setup.task.digest().hex()[:16]}…; give both servers the same task file"
        )

    async def _serve(self, channel: Channel) -> None:
        """Serve one connection until it is closed; the peer's becomes the link between the servers."""
        if channel.peer_key == self.setup.peer.channel:
            await self._link.attach(channel)
            return
        client = self.enrolment.by_channel(channel.peer_key)
        if client is None:  # dismissed between the handshake and now
            raise DismissedError(f"a key that is not known to {self._name} any more")
        with self.visit(client.name):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_dismissed, client)
                await self._conversations.hold(channel, client.name)
                nursery.cancel_scope.cancel()

    async def _end_when_dismissed(self, client: PublicIdentity) -> None:
        """End a client's connection once it is not known any more.

        Whatever it waits for stays unanswered: a submission may be stored by then, so "refused" would not be true. Its
        next connection is refused with the reason.
        """
        refusal = await self.enrolment.dismissed(client)
        raise DismissedError(f"{client.name!r} is let go: {refusal.reason}")

    def _limits(self) -> Limits:
        """What strangers are allowed; the peer has places of its own, so that clients can never keep it out."""
        own = {self.setup.peer.channel: PEER_CONNECTIONS}
        return replace(self.setup.limits, per_key_exceptions=own | dict(self.setup.limits.per_key_exceptions))

    def _taken(self, sender: str, message: Message, size: int) -> None:
        self.setup.observe(MessageReceived(sender=sender, kind=type(message).__name__, size=size))

    def _sent(self, receiver: str, message: Message, size: int, bulk: int) -> None:
        self.setup.watch(self._name, receiver, message, bulk)
        self.setup.observe(MessageSent(receiver=receiver, kind=type(message).__name__, size=size))

    def _answered(self, client: str, message: Message, size: int, bulk: int) -> None:
        self._sent(client, message, size, bulk)
        if isinstance(message, Refused):
            self.setup.observe(RequestRefused(client=client, reason=message.reason, explanation=message.explanation))

    def _budget_moved(self, used: int, limit: int) -> None:
        self.setup.observe(BudgetMoved(used=used, limit=limit))

    async def _admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        if key == self.setup.peer.channel:
            if payload != self.setup.task.digest():
                return Refusal(self._other_task(payload))
            return b"peer"
        return await self.enrolment.admit(key, payload)


def _part_sizes(task: Task, purpose: str) -> set[int]:
    if purpose == "retrieve":
        return {Layout.retrieval(task).size}
    return {Layout.submission(task, trees).size for trees in Trees}


def _longest_peer_message(task: Task) -> int:
    """An upper bound over all rounds: aligned ones are never larger than the task itself."""
    shapes = (task, union_task(task)) if task.alignment == "union" else (task,)
    parts = {size for shape in shapes for purpose in ("retrieve", "submit") for size in _part_sizes(shape, purpose)}
    shares = {share_bytes(shape) for shape in shapes}
    return bulk_overhead() + max(*parts, *shares, ENTRY_BYTES * task.max_clients)


def _first(group: BaseExceptionGroup[StoreLostError]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _last_words(report: RoundReport) -> Conclusion | Abort:
    """What a peer may have missed of a round that is over here."""
    if report.aborted:
        return Abort(report.round_id, report.aborted)
    return Conclusion(report.round_id, report.digest())
