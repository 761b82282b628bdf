"""A server as it is reached from outside: by its clients and by the other server; see `parties.server.operating`, too.

Each connection has a task. A client's task (see `parties.server.clients.connection`) reads rounds, waits for them, and
posts to the actor (see `parties.server.actor`), which alone changes a round.

A server that is started again with the same store resumes: what it acknowledged is there, and what it said it says
again in the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import trio

from fsl_async.errors import FslError, MisuseError, leaves
from parties.concurrency import RecurringEvent
from parties.events import ClientLeft, ClientMet, ConnectionFailed, Warned
from parties.identity.handshake import Credentials, serves
from parties.identity.keys import PublicIdentity
from parties.server.actor import Actor
from parties.server.admission import DismissedError
from parties.server.clients.connection import ClientConnections
from parties.server.clients.requests import RequestHandler
from parties.server.message_tap import MessageTap
from parties.server.operating import OperatedServer
from parties.server.peer.meeting import PeerDialling, other_task
from parties.server.replies import farewell, say_why
from parties.server.setup import ServerSetup
from parties.server.task_router import Listening, TaskRouter
from parties.storage.store import DiskFullError, StoreLostError
from transport import Channel, HandshakeSettings, NoPlace, Refusal, Role
from transport.needs_trio import NeedsTrio

_log = logging.getLogger("parties.server")
RUN = NeedsTrio("Server.run")


_ROLES = (Role.SERVER_0, Role.SERVER_1)


class Server(OperatedServer):
    """S0 or S1.

        async with trio.open_nursery() as nursery:
            address = await nursery.start(server.run)
            outcome = await server.close_round()

    Attributes:
        actor: takes what is in the inbox, and alone changes a round.
        requests: answers its clients' requests.
        clients: its clients' connections.
    """

    def __init__(self, setup: ServerSetup) -> None:
        tap = MessageTap(setup.name, setup.observe, setup.watch)
        super().__init__(setup, tap)
        self.actor = Actor(self.inbox, self.evidence, self.rounds, self.sequence, self.link, self.agreement)
        self._peer = PeerDialling(setup, self.agreement, self.handshake, self.check_peer)
        self.requests = RequestHandler(setup, self.records, self.rounds, self.inbox)
        self.clients = ClientConnections(
            self.requests.longest_bulk,
            self.requests.longest_answer,
            setup.conversations,
            tap,
            setup.observe,
        )
        self._store_failed, self._store_failure = trio.open_memory_channel[StoreLostError](1)
        self._left = RecurringEvent()
        self._connected: dict[trio.CancelScope, PublicIdentity] = {}

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; reports the address once clients can connect.

        Raises:
            PeerViolationError: the other server broke the protocol; nothing was revealed that it should not see.
            StorageError: the store cannot be read, or cannot be written any more.
            MisuseError: no trio task runs here.
        """
        RUN.require_trio()
        router = TaskRouter(Listening.of(self.setup, self.handshake()), self._tell_failure)
        async with self._at_work() as nursery:
            with router.serving(self):
                address = await nursery.start(router.listen)
                self._meet_peer(nursery, self._peer.dial)
                task_status.started(address)
                await trio.sleep_forever()

    async def run_behind(
        self, router: TaskRouter, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled; connections come from a router that somebody else lets listen, for several tasks.

        Where there are several, and the peer does not serve this one, or not yet, this server waits for it.

        Raises:
            PeerViolationError: as `run` does.
            StorageError: as `run` does.
        """
        async with self._at_work() as nursery:
            with router.serving(self):
                self._meet_peer(nursery, self._peer.dial_patiently if router.listening.several else self._peer.dial)
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
                nursery.start_soon(self._end_dismissed)
                nursery.start_soon(self.clients.life.show)
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

    def handshake(self) -> HandshakeSettings:
        """What this server says of itself in every handshake."""
        return HandshakeSettings(
            private_key=self.setup.identity.channel_secret,
            role=_ROLES[self.setup.index],
            kind=self.setup.kind,
            randomness=self.setup.randomness,
            payload=self.setup.task.digest(),
        )

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
    def _ending_with_lost_store(self) -> Iterator[None]:
        """Tell the server of a lost store: the listener takes each error for one of its connection alone."""
        try:
            yield
        except* StoreLostError as lost:
            with suppress(trio.WouldBlock):  # it has been told
                self._store_failed.send_nowait(StoreLostError(str(leaves(lost)[0])))
            raise

    async def serve(self, channel: Channel) -> None:
        """Serve one connection until it is closed; a lost store ends the server too."""
        with self._ending_with_lost_store():
            await self._serve(channel)

    async def admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        """Decide about the holder of an authenticated channel key: its name, or why not."""
        if key == self.setup.peer.channel:
            if payload != self.setup.task.digest():
                return Refusal(other_task(self.setup, payload))
            return b"peer"
        with self._ending_with_lost_store():
            try:
                return await self.enrolment.admit(key, payload)
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

    async def _serve(self, channel: Channel) -> None:
        """Serve one connection until it is closed; the peer's becomes the link between the servers."""
        role = channel.introduction.peer_role
        if channel.peer_key == self.setup.peer.channel:
            if role != _ROLES[1 - self.setup.index]:
                await self.clients.turn_away(channel, self.setup.peer.name, f"dials in the role of {role.name}")
            await self.link.attach(channel)
            return
        client = self.enrolment.by_channel(channel.peer_key)
        if client is None:  # dismissed between the handshake and now
            raise DismissedError(f"a key that is not known to {self.setup.name} any more")
        if role != Role.CLIENT:
            await self.clients.turn_away(channel, client.name, f"a client's key dials in the role of {role.name}")
        same_task = Credentials.decode(channel.introduction.peer_payload).task == self.setup.task.digest()
        with self._visit(client.name), trio.CancelScope() as scope:
            self._connected[scope] = client
            try:
                await self.clients.hold(channel, client.name, self.requests, same_task=same_task)
            finally:
                del self._connected[scope]
        if scope.cancelled_caught:
            refusal = self.enrolment.dismissal(client)
            why = f"{client.name!r} is disconnected: {refusal.reason if refusal else 'it was dismissed'}"
            await say_why(channel, farewell("busy", client.name, why))
            raise DismissedError(why)

    async def _end_dismissed(self) -> None:
        """End the connections of clients that are not known any more.

        A request stays undecided, which "busy" says: a submission may be stored by then. The client's next connection
        is refused.
        """
        while True:
            await self.enrolment.reloaded.wait()
            for scope, client in self._connected.items():
                if self.enrolment.dismissal(client) is not None:
                    scope.cancel()
