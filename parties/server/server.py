"""A server: its actor, which has the rounds, and a task for every connection that brings it work.

Connection tasks (see `parties.server.clients.connection`) read rounds, wait on them, and post to the actor (see
`parties.server.actor`); so does whoever runs the server.

A server that is started again with the same store goes on where it was: what was acknowledged is there, and what was
said is said again in the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import assert_never

import trio

from fsl_async.digests import Domain
from fsl_async.error_groups import leaves
from fsl_async.errors import FslError, MisuseError
from fsl_async.foreign_text import printable
from fsl_async.protocols import round as protocol
from fsl_async.protocols.machine import Event
from fsl_async.wire.messages import Message, Refused
from parties.concurrency import RecurringEvent
from parties.errors import SumRefusedError
from parties.events import BudgetMoved, ClientLeft, ClientMet, ConnectionFailed, RequestRefused, Warned
from parties.identity.keys import PublicIdentity
from parties.outcome import Aborted, Done, RoundOutcome, RoundReport, SumRefused
from parties.server.actor import Actor
from parties.server.admission import DismissedError
from parties.server.clients.connection import ClientConnections
from parties.server.clients.requests import RequestHandler
from parties.server.round.assembly import RequestRefusedError
from parties.server.round.run import RoundRun
from parties.server.setup import Schedule, ServerSetup
from parties.status import PastRound, ServerStatus
from parties.storage.store import DiskFullError, StoreLostError
from parties.watch import Watch, silent
from transport import (
    Channel,
    ForeignPeerError,
    HandshakeSettings,
    KindMismatchError,
    Limits,
    NoPlace,
    Refusal,
    Role,
    RoleMismatchError,
    Service,
    VersionMismatchError,
    WrongServerKeyError,
)

__all__ = ["Schedule", "Server", "ServerSetup", "Watch", "silent"]

_log = logging.getLogger("parties.server")

LASTING = (VersionMismatchError, KindMismatchError, RoleMismatchError, WrongServerKeyError, ForeignPeerError)
"""Why servers do not meet, where waiting does not help: somebody has to do something."""

PEER_CONNECTIONS = 2
"""One in use, and one that is about to end it."""


class Server(Actor):
    """S0 or S1: an actor that can be reached.

    Attributes:
        setup: what it is made of.
        model: the model as it stands.
        enrolment: the clients it knows.
        sessions: the trees that outlive their round, where the task's selection is fixed.
        evidence: what it saw against the protocol.
        visitors: how many clients are connected.
    """

    def __init__(self, setup: ServerSetup) -> None:
        super().__init__(setup)
        reception = RequestHandler(self)
        self._conversations = ClientConnections(
            reception,
            reception.longest_bulk,
            reception.longest_answer,
            setup.conversations,
            self._taken,
            self._answered,
            self._budget_moved,
        )
        self._store_failed, self._store_failure = trio.open_memory_channel[StoreLostError](1)
        self._left = RecurringEvent()
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
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._end_with_the_store)
                await self._begin(nursery)
                service = Service(
                    self.handshake(), self._admit_in_sight, self._serve_in_sight, self._limits(), self._tell_failure
                )
                address = await nursery.start(self.setup.transport.listen, self.setup.address, service)
                if self.setup.index == 1:
                    nursery.start_soon(self._link.keep_dialling, self._dial_peer)
                task_status.started(address)
        except* StoreLostError as lost:  # several tasks may have met it: one word is enough
            raise leaves(lost)[0] from None

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
        if isinstance(run, RoundRun) and run.round_id == round_id and run.serves(client):
            return run
        raise RequestRefusedError.because("round-closed", "that round is not open; enter the next one")

    def running(self) -> list[RoundRun]:
        """The round that is on; none between rounds."""
        return [self._current] if isinstance(self._current, RoundRun) else []

    async def knows(self, round_id: bytes) -> bool:
        """Whether a round of that name is on, or was."""
        run = self._current
        if (isinstance(run, RoundRun) and run.round_id == round_id) or round_id in self._over:
            return True
        return bool(await self._history.find(round_id))

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
            FslError: the round was aborted, or its sum refused; the message says why.
        """
        run = await self.next_round(0)
        await self._report(run.round_id, protocol.CloseRound())
        return await self.settled_outcome(run)

    async def settled_outcome(self, run: RoundRun) -> RoundOutcome:
        """Wait for a round's sum.

        Raises:
            SumRefusedError: its sum was opened, and not applied.
            FslError: the round was aborted; the message says why.
        """
        while run.round_id not in self._over:
            await self._settled.wait()
        report = run.report()
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
        await self._report(run.round_id, protocol.GaveUp(printable(explanation)))
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

    def status(self) -> ServerStatus:
        """How the server stands, for people."""
        run = self._current
        return ServerStatus(
            server=self.setup.index,
            task=self.setup.task.name,
            peer_connected=self._link.connected,
            clients_connected=self.visitors,
            round=run.status() if isinstance(run, RoundRun) else None,
            waiting_for=self.state_name(),
            rounds_done=self._standing.done,
            rounds_aborted=self._standing.aborted,
        )

    async def past_rounds(self, most: int = 200, before: int = 0) -> list[PastRound]:
        """The last rounds that are over, in order.

        Args:
            most: at most so many.
            before: only rounds with a smaller number than this; 0 for the latest.
        """
        settled = self._standing.settled
        return await self._history.past(min(settled, before - 1) if before else settled, most)

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
            self._left.set()

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
                self._store_failed.send_nowait(StoreLostError(str(leaves(lost)[0])))
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
        try:
            return await self.setup.transport.dial(
                self.setup.peer_address, self.setup.peer.channel, self.handshake(), self._check_peer
            )
        except LASTING as error:
            self._meeting.cannot_meet(f"{self._peer} cannot be met: {error}")
            raise

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
