"""Where connections come in: one address, one identity, and the servers of one task or of several behind it.

    listener ──> handshake ──> TaskRouter ─┬──> Server of "shop" ──> its clients, its link to the peer
                                           └──> Server of "town" ──> …

Rules: a connection goes to the server of the task that it names, once its key is authenticated; where only one task is
served, to that one, which says what differs. Who asks for a task that is not served hears which are, of those that know
its key. Each key has its places in each task of its own. When a server ends, so do its connections, and no other
server's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import trio

from fsl_async.errors import ChannelError, MisuseError
from parties.identity.handshake import MOST_TASKS, Credentials, served
from parties.identity.keys import key_prefix
from parties.server.admission import Enrolment
from parties.server.replies import farewell, say_why
from parties.server.setup import ServerSetup
from transport import Channel, HandshakeSettings, Limits, NoPlace, Observe, Refusal, Service, Transport

PEER_CONNECTIONS = 2
"""Of the other server, for one task: one in use, and one that is about to end it."""

MOST_NAMED = 5
LONGEST_NAME = 24
"""So many tasks at most are named in a refusal, with so many characters of each, so that it fits into the handshake."""


@dataclass(frozen=True)
class Listening:
    """Where connections are taken, and as whom.

    Attributes:
        name: S0 or S1.
        peer: the other server's channel key.
        address: where it listens.
        transport: how.
        settings: what it brings to every handshake; the payload is made of the tasks that are served.
        limits: what strangers are allowed.
        several: whether there may be several tasks.
    """

    name: str
    peer: bytes
    address: str
    transport: Transport
    settings: HandshakeSettings
    limits: Limits
    several: bool = False

    @staticmethod
    def of(setup: ServerSetup, settings: HandshakeSettings, *, several: bool = False) -> Listening:
        """Where a server of this setup listens; `settings` are its handshake's."""
        return Listening(
            setup.name, setup.peer.channel, setup.address, setup.transport, settings, setup.limits, several
        )


class TaskServer(Protocol):
    """The server of one task, as its router sees it."""

    setup: ServerSetup

    @property
    def enrolment(self) -> Enrolment:
        """The clients that it knows."""

    async def admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        """Decide about the holder of an authenticated channel key."""

    async def serve(self, channel: Channel) -> None:
        """Serve one connection until it is closed."""


class TaskRouter:
    """Takes connections for the servers of one task or several.

        router = TaskRouter(Listening.of(setup, settings, several=True), observe)
        address = await nursery.start(router.listen)
        with router.serving(server):
            ...

    Args:
        listening: where it listens, and as whom.
        observe: hears of every connection that failed.
    """

    def __init__(self, listening: Listening, observe: Observe) -> None:
        self.listening = listening
        self._observe = observe
        self._servers: dict[bytes, TaskServer] = {}
        self._away: dict[bytes, str] = {}
        self._connections: dict[bytes, set[trio.CancelScope]] = {}

    async def listen(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Take connections until cancelled; reports the address once clients can connect.

        Raises:
            UnreachableError: the address cannot be listened at.
        """
        service = Service(
            self.listening.settings,
            self._admit,
            self._serve,
            self._limits(),
            self._observe,
            payload=self._payload,
            place=self._place,
        )
        await self.listening.transport.listen(self.listening.address, service, task_status=task_status)

    @contextmanager
    def serving(self, server: TaskServer) -> Iterator[None]:
        """Bring connections to a server for as long as the block lasts; then they end."""
        task = server.setup.task.digest()
        self._servers[task] = server
        self._connections[task] = set()
        try:
            yield
        finally:
            del self._servers[task]
            self._away[task] = f"task {server.setup.task.name!r} is about to end"
            for connection in self._connections.pop(task):
                connection.cancel()

    def is_away(self, task: bytes, explanation: str) -> None:
        """Tell those who ask for a task that is not served at present to come back, and why."""
        self._away[task] = explanation

    def forget(self, task: bytes) -> None:
        """Take a task that is not served for one like any other."""
        self._away.pop(task, None)

    # ---- which server

    def _payload(self) -> bytes:
        """What every handshake says of the tasks: where there may be several, how many there are now shows nowhere."""
        if not self.listening.several:
            return next(iter(self._servers or self._away), b"")
        return served(self._servers, self.listening.settings.randomness)

    def _route(self, key: bytes, payload: bytes) -> TaskServer | Refusal:
        """The server for the holder of an authenticated key, or why there is none."""
        if not self.listening.several:
            return next(iter(self._servers.values()), None) or self._unserved(b"")
        if key == self.listening.peer:
            return self._servers.get(payload) or self._refused_peer(payload)
        try:
            task = Credentials.decode(payload).task
        except MisuseError as error:
            return Refusal(str(error))
        if task in self._servers:
            return self._servers[task]
        own = {digest: server for digest, server in self._servers.items() if server.enrolment.by_channel(key)}
        if task in self._away or not own:
            return self._unserved(task) if task in self._away else self._unknown(key, task)
        return next(iter(own.values())) if len(own) == 1 else self._of_others(own, task)

    def _unserved(self, task: bytes) -> Refusal:
        return NoPlace(self._away.get(task, f"{self.listening.name} is about to stop"))

    def _unknown(self, key: bytes, task: bytes) -> Refusal:
        return Refusal(
            f"{self.listening.name} does not serve the task whose digest is {task.hex()[:16]}…, and knows the key "
            f"{key_prefix(key)} in no other; check your task file, or ask its operator to add you"
        )

    def _of_others(self, own: Mapping[bytes, TaskServer], task: bytes) -> Refusal:
        return Refusal(
            f"{self.listening.name} does not serve the task whose digest is {task.hex()[:16]}…; of the tasks that it "
            f"serves you are in {_named(own)}: use the task file of one of these"
        )

    def _refused_peer(self, task: bytes) -> Refusal:
        if task in self._away:
            return self._unserved(task)
        return Refusal(
            f"{self.listening.name} does not serve the task whose digest is {task.hex()[:16]}…; it serves "
            f"{_named(self._servers) or 'none at present'}: give both servers the same task files"
        )

    # ---- what the listener asks

    async def _admit(self, key: bytes, payload: bytes) -> bytes | Refusal:
        match self._route(key, payload):
            case Refusal() as refusal:
                return refusal
            case server:
                return await server.admit(key, payload)

    async def _serve(self, channel: Channel) -> None:
        found = self._route(channel.peer_key, channel.introduction.peer_payload)
        if isinstance(found, Refusal):  # it has ended between the handshake and now
            await self._tell(channel, found.reason)
            raise ChannelError(f"nobody is left to serve this connection: {found.reason}")
        task = found.setup.task.digest()
        connections = self._connections[task]
        with trio.CancelScope() as scope:
            connections.add(scope)
            try:
                await found.serve(channel)
            finally:
                connections.discard(scope)
        if scope.cancelled_caught:
            await self._tell(channel, self._unserved(task).reason)

    async def _tell(self, channel: Channel, why: str) -> None:
        """Say to a client why its connection ends; what the other server has to hear, the link says."""
        if channel.peer_key != self.listening.peer:
            await say_why(channel, farewell("busy", "", why))

    def _place(self, key: bytes, payload: bytes) -> bytes:
        """Under which name a connection takes its place: a key's in one task."""
        found = self._route(key, payload)
        if key in self._exceptions() or isinstance(found, Refusal):
            return key
        return key + found.setup.task.digest()

    # ---- limits

    def _exceptions(self) -> Mapping[bytes, int]:
        """The keys with places of their own; the peer is among them, so that clients cannot keep it out."""
        links = MOST_TASKS if self.listening.several else 1
        own = {self.listening.peer: PEER_CONNECTIONS * links}
        return own | dict(self.listening.limits.per_key_exceptions)

    def _limits(self) -> Limits:
        return replace(self.listening.limits, per_key_exceptions=self._exceptions())


def _named(servers: Mapping[bytes, TaskServer]) -> str:
    """Some tasks, with the beginnings of their digests."""
    some = [f"{server.setup.task.name[:LONGEST_NAME]!r} ({digest.hex()[:16]}…)" for digest, server in servers.items()]
    more = len(some) - MOST_NAMED
    return ", ".join(some[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
