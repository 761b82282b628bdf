"""Conversations between parties that know each other by name and key: messages of one closed union, again and again.

A conversation that is lost is begun anew, so what was said before may have to be said again: an actor sends the effects
of its state at the beginning of each, and its machine takes repetitions for harmless. A pair is one party that listens
(`serve_peers`) and one that dials (`dial_peer`); both run the same `converse`.

Rules: only a lost connection begins a conversation anew; any other error, such as a violation by the peer or a store
that fails, ends the caller. With one peer there is one conversation at a time: a newer one ends the older.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, MisuseError, PeerViolationError, leaves
from fsl_async.wire.codec import CONTROL_LIMIT, Message, MessageSet, Received, decode, encode
from parties.host import Host
from parties.watch import Note
from transport import (
    Channel,
    KeyPair,
    KindMismatchError,
    Refusal,
    RefusedError,
    Role,
    RoleMismatchError,
    Service,
    VersionMismatchError,
)

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds until a peer that could not be reached is dialled again: twice as long each time."""

_HOPELESS = (RefusedError, KindMismatchError, RoleMismatchError, VersionMismatchError)

_log = logging.getLogger("parties.peers")


@dataclass(frozen=True)
class Peer:
    """Another party, as this one knows it.

    Attributes:
        name: its name.
        key: its static public key.
        address: where it listens; empty if it only dials.
    """

    name: str
    key: bytes
    address: str = ""


class MessageChannel:
    """Messages of one closed union to and from one peer, over an authenticated channel.

        await channel.send(Bid(price=7))
        message, bulk = await channel.receive()

    Attributes:
        peer: the other party's name.
    """

    def __init__(self, host: Host, peer: str, channel: Channel, messages: MessageSet) -> None:
        self.peer = peer
        self._host = host
        self._channel = channel
        self._messages = messages
        self._turn = trio.Lock()

    async def send(self, message: Message, *bulk: Buffer) -> None:
        """Send one message, with bulk data if there is any.

        Raises:
            MisuseError: the message is not of the union, or its bulk is longer than the union allows.
            ChannelError: the connection is lost.
        """
        size = sum(len(part) for part in bulk)
        self._messages.require(message, size)
        async with self._turn:
            self._host.watch(Note(self._host.name, self.peer, message, size))
            await self._channel.send(*encode(message, *bulk))

    async def receive(self) -> Received[Any]:
        """Wait for the next message, for as long as the peer lives.

        Raises:
            PeerViolationError: what came is not a message of the union.
            ChannelError: the connection is lost.
        """
        await self._channel.awaited()
        data = await self._channel.receive(CONTROL_LIMIT + self._messages.most_bulk)
        received = decode(data, self._messages.union, self.peer)
        if len(received.bulk) > self._messages.most_bulk:
            raise PeerViolationError(
                self.peer, f"sent {len(received.bulk):,} bytes of bulk; {self._messages.most_bulk:,} are the most"
            )
        return received


Converse: TypeAlias = Callable[[MessageChannel], Awaitable[None]]
"""One conversation, from the beginning of a connection."""


async def dial_peer(host: Host, keys: KeyPair, peer: Peer, messages: MessageSet, converse: Converse) -> None:
    """Converse with a peer that listens, over one connection after the other, until `converse` returns.

    Args:
        host: what this party runs on.
        keys: its static keys.
        peer: the other party.
        messages: what the two say; a peer that speaks another protocol is refused.
        converse: called with each connection.

    Raises:
        PeerViolationError: the peer speaks another protocol, or broke this one.
        RefusedError: the peer does not know this party.
        FslError: any other error of `converse` but a lost connection.
    """

    def check(payload: bytes) -> None:
        if payload != messages.name.encode():
            raise PeerViolationError(peer.name, f"speaks {payload!r}, not {messages.name!r}")

    settings = host.handshake(keys, Role.CLIENT, messages.name.encode())
    pause = FIRST_PAUSE
    while True:
        try:
            async with await host.transport.dial(peer.address, peer.key, settings, check) as channel:
                pause = FIRST_PAUSE
                return await converse(MessageChannel(host, peer.name, channel, messages))
        except Exception as error:
            if not _is_lost(error):
                raise
            _log.info("%s: %s; next attempt in %g s", peer.name, error, pause)
        await trio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def serve_peers(
    host: Host,
    keys: KeyPair,
    address: str,
    peers: Sequence[Peer],
    messages: MessageSet,
    converse: Converse,
    *,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listen, and converse with each peer that dials, until cancelled; reports the address once it can be dialled.

    Args:
        host: what this party runs on.
        keys: its static keys.
        address: where to listen.
        peers: who may dial.
        messages: what they say; a peer that speaks another protocol is refused.
        converse: called with each connection.
        task_status: of `nursery.start`.

    Raises:
        MisuseError: two peers have one name or one key.
        FslError: of `converse`, unless it is a lost connection.
        UnreachableError: the address cannot be listened at.
    """
    for what in ("key", "name"):
        if len({getattr(peer, what) for peer in peers}) < len(peers):
            raise MisuseError(f"two peers have the same {what}; every party has a name and keys of its own")
    known = {peer.key: _Place(peer.name) for peer in peers}
    failed: list[Exception] = []

    async def admit(key: bytes, payload: bytes) -> bytes | Refusal:
        if key not in known:
            return Refusal(f"{host.name} does not know this key: {key.hex()}")
        if payload != messages.name.encode():
            return Refusal(f"{host.name} speaks {messages.name!r}, not {payload!r}")
        return b""

    async def handle(channel: Channel) -> None:
        place = known[channel.peer_key]
        try:
            await place.use(converse, MessageChannel(host, place.name, channel, messages))
        except Exception as error:
            if _is_lost(error):
                raise
            failed.append(error)
            scope.cancel()

    settings = host.handshake(keys, Role.SERVER_0, messages.name.encode())
    with trio.CancelScope() as scope:
        await host.transport.listen(address, Service(settings, admit, handle), task_status=task_status)
    if failed:
        raise failed[0]


class _Place:
    """One peer's place at a listener: one conversation at a time, the newest."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._in_use = trio.CancelScope()
        self._turn = trio.Lock()

    async def use(self, converse: Converse, channel: MessageChannel) -> None:
        self._in_use.cancel()
        async with self._turn:
            with trio.CancelScope() as self._in_use:
                await converse(channel)


def _is_lost(error: Exception) -> bool:
    """Whether nothing is wrong but the connection, so that another one may do."""
    return all(isinstance(leaf, ChannelError) and not isinstance(leaf, _HOPELESS) for leaf in leaves(error))
