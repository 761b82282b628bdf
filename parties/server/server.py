"""A server as it is reached from outside: by its clients, by the other server, and by the program that runs it.

Each connection has a task. A client's task (see `parties.server.clients.connection`) reads rounds, waits for them, and
posts to the actor (see `parties.server.actor`), which alone changes a round.

A server that is started again with the same store resumes: what it acknowledged is there, and what it said it says
again in the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import assert_never

import trio

from fsl_async.error_groups import leaves
from fsl_async.errors import FslError, MisuseError, PeerViolationError
from fsl_async.foreign_text import printable
from fsl_async.protocols.ending import CloseRound, GaveUp
from parties.concurrency import RecurringEvent
from parties.errors import SumRefusedError
from parties.events import ClientLeft, ClientMet, ConnectionFailed, Warned
from parties.identity.credentials import Credentials
from parties.identity.keys import PublicIdentity
from parties.identity.served import serves
from parties.outcome import Aborted, Done, Model, RoundOutcome, RoundReport, SumRefused
from parties.server.actor import Actor
from parties.server.admission import DismissedError, Enrolment
from parties.server.clients.connection import ClientConnections
from parties.server.clients.requests import RequestHandler
from parties.server.closing import close_now
from parties.server.evidence import EvidenceBook
from parties.server.history import SumOf
from parties.server.inbox import Inbox
from parties.server.peer.dialling import PeerDialling, other_task
from parties.server.peer.forwarding import longest_peer_message
from parties.server.peer.link import PeerLink
from parties.server.peer.listening import PeerInbox
from parties.server.peer.reconciliation import Meeting
from parties.server.reception import Listening, Reception
from parties.server.records import ServerRecords
from parties.server.round.run import RoundRun
from parties.server.round_sequence import RoundSequence
from parties.server.rounds import Resting, Rounds, Running, Sampling, Stage, Tossing
from parties.server.setup import ServerSetup
from parties.server.traffic import Traffic
from parties.status import PastRound, ServerStatus
from parties.status import Stage as StageName
from parties.storage.store import DiskFullError, StoreLostError
from transport import (
    Channel,
    HandshakeSettings,
    NoPlace,
    Refusal,
    Role,
    SecureChannel,
)
from transport.needs_trio import NeedsTrio

_log = logging.getLogger("parties.server")
RUN = NeedsTrio("Server.run")


_ROLES = (Role.SERVER_0, Role.SERVER_1)


class Server:
    """S0 or S1.

        async with trio.open_nursery() as nursery:
            address = await nursery.start(server.run)
            outcome = await server.close_round()

    Args:
        setup: what it is made of.

    Attributes:
        setup: what it is made of.
        records: what it keeps beyond a round.
        inbox: takes what is to change a round.
        rounds: its rounds.
        link: the connection to the other server.
        meeting: what it makes of the other server while they are connected.
        sequence: moves its rounds on.
        actor: takes what is in the inbox, and alone changes a round.
        requests: answers its clients' requests.
        clients: its clients' connections.
        visitors: how many clients are connected.
    """

    def __init__(self, setup: ServerSetup) -> None:
        traffic = Traffic(setup.name, setup.observe, setup.watch)
        self.setup = setup
        self.records, self.inbox = ServerRecords(setup), Inbox()
        self.rounds = Rounds(setup.peer_name, self.records.history)
        listener = PeerInbox(setup, self.inbox, self.rounds, self.enrolment)
        self.link = PeerLink(setup.peer_name, longest_peer_message(setup.task), listener, traffic)
        self.meeting = Meeting(setup.name, self.link, setup.observe)
        self.sequence = RoundSequence(setup, self.records, self.rounds, self.link, self.inbox)
        self.actor = Actor(self.inbox, self.evidence, self.rounds, self.sequence, self.link, self.meeting)
        self._peer = PeerDialling(setup, self.meeting, self.handshake, self.check_peer)
        self.requests = RequestHandler(setup, self.records, self.rounds, self.inbox)
        self.clients = ClientConnections(
            self.requests.longest_bulk,
            self.requests.longest_answer,
            setup.conversations,
            traffic,
            setup.observe,
        )
        self._store_failed, self._store_failure = trio.open_memory_channel[StoreLostError](1)
        self._left = RecurringEvent()
        self.visitors = 0

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the address once clients can connect.

        Raises:
            PeerViolationError: the other server broke the protocol; nothing was revealed that it should not see.
            StorageError: the store cannot be read, or cannot be written any more.
            MisuseError: no trio task runs here.
        """
        RUN.require_trio()
        reception = Reception(Listening.of(self.setup, self.handshake()), self._tell_failure)
        async with self._at_work() as nursery:
            with reception.serving(self):
                address = await nursery.start(reception.listen)
                self._meet_peer(nursery, self._peer.dial)
                task_status.started(address)
                await trio.sleep_forever()

    async def run_behind(
        self, reception: Reception, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; connections come from a reception that somebody else lets listen, for several tasks.

        Where there are several, and the peer does not serve this one, or not yet, this server waits for it.

        Raises:
            PeerViolationError: as `run` does.
            StorageError: as `run` does.
        """
        async with self._at_work() as nursery:
            with reception.serving(self):
                self._meet_peer(nursery, self._peer.dial_patiently if reception.listening.several else self._peer.dial)
                task_status.started()
                await trio.sleep_forever()

    async def restore(self) -> None:
        """Read back what the store holds.

        Raises:
            StorageError: it cannot be read, or is another server's or another task's.
        """
        await self.records.restore()
        await self.sequence.restore()

    @asynccontextmanager
    async def _at_work(self) -> AsyncIterator[trio.Nursery]:
        """Read the store back, and let rounds run in a nursery for as long as the block lasts."""
        await self.restore()
        if self.enrolment.warning:
            _log.warning("%s: %s", self.setup.name, self.enrolment.warning)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with_the_store)
                nursery.start_soon(self.sequence.engine.run, self.setup.observe)
                await self.sequence.begin(nursery)
                nursery.start_soon(self.actor.run)
                nursery.start_soon(self.rounds.watch_peer, self.link)
                yield nursery
        except* StoreLostError as lost:  # several tasks may have met it: one error is enough
            raise leaves(lost)[0] from None

    def _meet_peer(self, nursery: trio.Nursery, dial: Callable[[], Awaitable[Channel]]) -> None:
        if self.setup.index == 1:
            nursery.start_soon(self.link.keep_dialling, dial)

    # ---- what it is

    @property
    def model(self) -> Model:
        """The model as it stands."""
        return self.sequence.lasting.arrays.model

    @property
    def rule_state(self) -> Model:
        """What the task's optimizer or own rule keeps beside the model; empty where that is nothing."""
        return self.sequence.lasting.arrays.state

    @property
    def last_sum(self) -> tuple[SumOf, Model] | None:
        """The sum of the last round that was done, and whose it is; None without one, or if the setup keeps none."""
        whose = self.sequence.lasting.progress.sum_of
        return None if whose is None else (whose, self.sequence.lasting.arrays.update)

    @property
    def enrolment(self) -> Enrolment:
        """The clients that it knows."""
        return self.records.enrolment

    @property
    def evidence(self) -> EvidenceBook:
        """What it saw against the protocol."""
        return self.records.evidence

    def handshake(self) -> HandshakeSettings:
        """What this server says of itself in every handshake."""
        return HandshakeSettings(
            private_key=self.setup.identity.channel_secret,
            role=_ROLES[self.setup.index],
            kind=self.setup.kind,
            randomness=self.setup.randomness,
            payload=self.setup.task.digest(),
        )

    # ---- its rounds

    @property
    def running(self) -> RoundRun | None:
        """The round that is on; none between rounds."""
        return self.rounds.running

    async def next_round(self, after: int) -> RoundRun:
        """Wait for an open round with a number above `after`."""
        return await self.rounds.next_round(after)

    async def close_round(self) -> RoundOutcome:
        """Close the open round now and wait for its sum.

        Raises:
            FslError: the round was aborted, or its sum refused; the message says why.
        """
        run = await self.next_round(0)
        await self.inbox.post(run.round_id, CloseRound())
        return await self.settled_outcome(run)

    def draw(self) -> None:
        """In a task with a sample: gather no longer, and draw of those that have asked, as soon as they are enough.

        Raises:
            MisuseError: nobody is to be drawn now.
        """
        self.rounds.drawing(self.setup.name).hurry()

    def asked_clients(self) -> frozenset[str]:
        """Who has asked to take part in the round that is to be drawn.

        Raises:
            MisuseError: nobody is to be drawn now.
        """
        return self.rounds.askers.of(self.rounds.drawing(self.setup.name).number)

    def has_enough_asked(self) -> bool:
        """Whether so many have asked that a sample of them can be summed; raises as `asked_clients`."""
        return self.rounds.drawing(self.setup.name).terms.are_enough(len(self.asked_clients()))

    def check_drawable(self) -> int:
        """How many clients have asked, if that is enough and they are not listed yet.

        Raises:
            MisuseError: it is not, or nobody is to be drawn now.
        """
        return self.rounds.check_drawable(self.setup.name)

    def draw_round(self, number: int) -> int:
        """End the gathering for a round, and draw of those that have asked; the other server follows.

        Returns:
            How many clients have asked this server.

        Raises:
            MisuseError: nobody is to be drawn for a round of that number now, or too few have asked.
        """
        if number != self.rounds.number:
            raise MisuseError(
                f"nobody is to be drawn for round {number} now; {self.setup.name} is at: {self.state_name()}"
            )
        asked = self.check_drawable()
        self.draw()
        return asked

    async def close_now(self, number: int) -> int:
        """Close the open round with those who have submitted; the other server follows. Nothing waits for its sum.

        Returns:
            How many submissions this server has; those that the other one has as well can count.

        Raises:
            MisuseError: no round of that number is open or has been closed, too few have submitted, or the other server
                is not connected.
        """
        return await close_now(self.setup.name, self.rounds, self.inbox, self.link, number)

    async def settled_outcome(self, run: RoundRun) -> RoundOutcome:
        """Wait for a round's sum.

        Raises:
            SumRefusedError: its sum was opened, and not applied.
            FslError: the round was aborted; the message says why.
        """
        report = await self.rounds.until_settled(run)
        match report.ending:
            case Done():
                return run.outcome()
            case Aborted(explanation=explanation):
                raise FslError(f"round {report.number} was aborted: {explanation}")
            case SumRefused(explanation=explanation):
                raise SumRefusedError(report.number, explanation)
            case _:
                assert_never(report.ending)

    async def settlements(self) -> AsyncGenerator[RoundReport, None]:
        """The report of each round settled since this server was started; ends with the schedule's last."""
        rounds, number = self.rounds, self.sequence.settled_before
        while not (self.setup.schedule.rounds and number >= self.setup.schedule.rounds):
            fresh = [past.report for past in rounds.past if past.report.number > number]
            if not fresh:
                await rounds.settled.wait()
                continue
            number = fresh[0].number
            yield fresh[0]

    async def abort_round(self, number: int, explanation: str) -> RoundReport:
        """Abort the running round, and wait until it is over.

        Raises:
            MisuseError: no round of that number is running, or it cannot be aborted any more.
        """
        run = self.running
        if run is None or run.config.number != number:
            raise MisuseError(f"round {number} is not running; {self.setup.name} is at: {self.state_name()}")
        if not run.accepts(GaveUp):
            bound = (
                "both servers have closed it"
                if run.config.protocol == "psr"
                else "both servers may have committed to their shares, and a server that has committed cannot abandon "
                "the round"
            )
            raise MisuseError(
                f"round {number} is in state {type(run.state).__name__}: {bound}; it ends when both are connected"
            )
        await self.inbox.post(run.round_id, GaveUp(printable(explanation)))
        return await self.rounds.until_settled(run)

    async def wind_up(self, seconds: float) -> str:
        """Open no further round, and wait at most so many seconds for the one that is on its way to its sum.

        A round that still waits for clients, or is not over by then, is parked: it resumes when the server is started
        again with the same store.

        Returns:
            What the server was doing at the end, for people.
        """
        self.sequence.wind_up()
        run = self.running
        if run is not None and not run.is_open:
            with trio.move_on_after(seconds):
                await self.rounds.until_settled(run)
        return self.state_name()

    def state_name(self) -> str:
        """What the server is doing, for people."""
        held_up = self.records.standstill.what
        return self.rounds.state_name() + (f"; held up by {held_up}" if held_up else "")

    def status(self) -> ServerStatus:
        """How the server stands, for people."""
        run, progress = self.running, self.sequence.lasting.progress
        return ServerStatus(
            server=self.setup.index,
            task=self.setup.task.name,
            task_digest=self.setup.task.digest(),
            model_digest=self.sequence.lasting.model_digest,
            statement_keys=self._statement_keys(),
            peer_connected=self.link.connected,
            peer_release=self.meeting.peer_release,
            clients_connected=self.visitors,
            clients_known=len(self.enrolment.names()),
            stage=_stage_name(self.rounds.stage),
            asked=len(self.rounds.askers.of(self.rounds.number)),
            number=self.rounds.number,
            last=self.rounds.past[-1] if self.rounds.past else None,
            round=None if run is None else run.status(),
            waiting_for=self.state_name(),
            rounds_done=progress.done,
            rounds_aborted=progress.aborted,
            privacy=self.records.ledger.status(),
            blobs=None if self.setup.blobs is None else self.records.blobs.status(),
            engine=self.sequence.engine.status(),
        )

    def _statement_keys(self) -> tuple[bytes, bytes]:
        own, peer = self.setup.identity.public.statement, self.setup.peer.statement
        return (own, peer) if self.setup.index == 0 else (peer, own)

    def known_clients(self) -> tuple[str, ...]:
        """The names of the clients that may take part, sorted."""
        return self.enrolment.names()

    def submitted_clients(self) -> frozenset[str]:
        """The clients whose submission is on the running round's list; nobody where no round runs."""
        return frozenset() if self.running is None else self.running.course.submitters()

    def drawn_clients(self) -> frozenset[str] | None:
        """The clients that were drawn for the running round; None where everybody may take part, or no round runs."""
        return None if self.running is None else self.running.drawn

    async def past_rounds(self, most: int = 200, before: int | None = None) -> list[PastRound]:
        """The last rounds that are over, in order.

        Args:
            most: at most so many.
            before: only rounds with a smaller number than this, if it is given.
        """
        settled = self.sequence.lasting.settled
        return await self.records.history.past(settled if before is None else min(settled, before - 1), most)

    # ---- its clients

    async def drain(self, seconds: float) -> None:
        """Wait until every client has disconnected, knowing how the last round ended; at most so many seconds."""
        with trio.move_on_after(seconds):
            while self.visitors:
                await self._left.wait()

    @contextmanager
    def _visit(self, client: str) -> Iterator[None]:
        """Count a client's connection."""
        self.visitors += 1
        self.setup.observe(ClientMet(client=client))
        try:
            yield
        finally:
            self.visitors -= 1
            self.setup.observe(ClientLeft(client=client))
            self._left.set()

    # ---- connections

    async def _end_with_the_store(self) -> None:
        """End the server when a connection's task finds that the store is lost."""
        raise await self._store_failure.receive()

    @contextmanager
    def in_sight(self) -> Iterator[None]:
        """Tell the server of a lost store: the listener takes each error for one of its connection alone."""
        try:
            yield
        except* StoreLostError as lost:
            with suppress(trio.WouldBlock):  # it has been told
                self._store_failed.send_nowait(StoreLostError(str(leaves(lost)[0])))
            raise

    async def serve_in_sight(self, channel: SecureChannel) -> None:
        """Serve one connection until it is closed; a lost store ends the server too."""
        with self.in_sight():
            await self._serve(channel)

    async def admit_in_sight(self, key: bytes, payload: bytes) -> bytes | Refusal:
        """Decide about the holder of an authenticated channel key; a lost store ends the server."""
        with self.in_sight():
            try:
                return await self.admit(key, payload)
            except DiskFullError as error:
                self.setup.observe(Warned(about="store", explanation=str(error)))
                return NoPlace(f"{self.setup.name} cannot enrol you at present: its disk is full")

    def _tell_failure(self, origin: str, error: FslError) -> None:
        self.setup.observe(ConnectionFailed(origin=origin, kind=type(error).__name__, explanation=str(error)))

    def check_peer(self, payload: bytes) -> None:
        """Judge what the peer says of itself when this server dials it.

        Raises:
            MisuseError: it runs another task.
        """
        if not serves(payload, self.setup.task.digest()):
            raise MisuseError(other_task(self.setup, payload))

    async def _serve(self, channel: SecureChannel) -> None:
        """Serve one connection until it is closed; the peer's becomes the link between the servers."""
        role = channel.introduction.peer_role
        if channel.peer_key == self.setup.peer.channel:
            if role != _ROLES[1 - self.setup.index]:
                raise PeerViolationError(self.setup.peer.name, f"dials in the role of {role.name}")
            await self.link.attach(channel)
            return
        client = self.enrolment.by_channel(channel.peer_key)
        if client is None:  # dismissed between the handshake and now
            raise DismissedError(f"a key that is not known to {self.setup.name} any more")
        if role != Role.CLIENT:
            await self.clients.turn_away(channel, client.name, f"a client's key dials in the role of {role.name}")
        same_task = Credentials.decode(channel.introduction.peer_payload).task == self.setup.task.digest()
        with self._visit(client.name):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_when_dismissed, client)
                await self.clients.hold(channel, client.name, self.requests, same_task=same_task)
                nursery.cancel_scope.cancel()

    async def _end_when_dismissed(self, client: PublicIdentity) -> None:
        """End a client's connection once the client is not known any more.

        Its request stays unanswered: a submission may be stored by then, so "refused" would not be true. Its next
        connection is refused with the reason.
        """
        refusal = await self.enrolment.dismissed(client)
        raise DismissedError(f"{client.name!r} is disconnected: {refusal.reason}")

    async def admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        """Decide about the holder of an authenticated channel key; the answer is its name, or why not."""
        if key == self.setup.peer.channel:
            if payload != self.setup.task.digest():
                return Refusal(other_task(self.setup, payload))
            return b"peer"
        return await self.enrolment.admit(key, payload)


def _stage_name(stage: Stage) -> StageName:
    match stage:
        case Tossing():
            return "preparing"
        case Sampling():
            return "drawing"
        case Running():
            return "running"
        case Resting():
            return "resting"
        case _:
            assert_never(stage)
