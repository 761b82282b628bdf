"""The connection between the two servers, kept alive.

S1 dials S0, again and again until it answers; messages leave in the order in which they were posted, and what is large
is read from the store when its turn comes. A lost connection loses what was queued: each time the servers meet, the
actor posts again what its state says the peer may lack, so nothing here needs to remember. The servers show each other
signs of life; a peer that gives none is taken for lost, whatever the network says. One that breaks a rule hears which.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, PeerViolationError, leaves
from fsl_async.wire.codec import Received, decode, encode
from fsl_async.wire.messages import FromPeer, Message
from parties.concurrency import RecurringEvent
from parties.server.message_tap import MessageTap
from parties.server.replies import farewell, say_why
from transport import Channel, MessageTooLongError, Pace, RecordError, SilentPeerError, TooSlowError

_log = logging.getLogger("parties.link")

LONGEST_PAUSE = 5.0
FLUSH_PATIENCE = 1.0
PACE = Pace(grace=30.0, silence=120.0)
"""Of a message under way, in either direction: the peer is not trusted to finish what it begins. It may be slow for a
while because it stores what it takes; a link that is dropped is made anew, and costs what was under way."""

Fetch: TypeAlias = Callable[[], Awaitable[Buffer | None]]
"""Reads the bulk of a message; None if the message is not needed any more."""


@dataclass(frozen=True)
class _Posted:
    message: Message
    fetch: Fetch


class PeerListener(Protocol):
    """Takes what comes from the peer."""

    async def peer_met(self) -> None:
        """A connection stands."""

    async def peer_said(self, received: Received[FromPeer]) -> None:
        """A message has come; the next one is read when this returns."""

    def peer_lost(self) -> None:
        """The connection is lost."""


class PeerLink:
    """Messages to and from the other server.

    Args:
        peer: its name, for messages.
        limit: the longest message it may send, in bytes.
        listener: takes what comes.
        tap: hears of every message that has gone out or come in.

    Attributes:
        peer: the other server's name.
    """

    def __init__(self, peer: str, limit: int, listener: PeerListener, tap: MessageTap) -> None:
        self.peer = peer
        self._limit = limit
        self._listener = listener
        self._tap = tap
        self._greeted = False
        self._refused = False
        self._queue: deque[_Posted] = deque()
        self._posted = RecurringEvent()
        self._sent = RecurringEvent()
        self._moved = RecurringEvent()
        self._attach = trio.Lock()
        self._in_use = trio.CancelScope()
        self._channel: Channel | None = None
        self._sent_before = 0
        self._received_before = 0

    @property
    def connected(self) -> bool:
        """Whether a connection stands."""
        return self._channel is not None

    async def until(self, *, connected: bool) -> None:
        """Wait until a connection stands, or until none does."""
        while self.connected is not connected:
            await self._moved.wait()

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to the peer so far, over all connections: handshakes, framing and all."""
        return self._sent_before + (self._channel.bytes_sent if self._channel else 0)

    @property
    def bytes_received(self) -> int:
        """Bytes received from the peer so far, over all connections: handshakes, framing and all."""
        return self._received_before + (self._channel.bytes_received if self._channel else 0)

    def greet(self) -> None:
        """Let messages out from now on; the actor calls this first when it learns that a connection stands.

        A message that it posted before, not knowing of the connection, would overtake what the peer may lack.
        """
        self._greeted = True

    def post(self, message: Message, bulk: Buffer = b"") -> None:
        """Queue a message; before the greeting it is dropped, because the actor has yet to say what the peer lacks."""

        async def at_hand() -> Buffer:
            return bulk

        self.post_stored(message, at_hand)

    def post_stored(self, message: Message, fetch: Fetch) -> None:
        """Queue a message whose bulk is read when its turn comes; dropped as in `post`."""
        if self.connected and self._greeted:
            self._queue.append(_Posted(message, fetch))
            self._posted.set()

    async def flush(self) -> None:
        """Wait until all that was posted has left, but no longer than `FLUSH_PATIENCE` seconds."""
        with trio.move_on_after(FLUSH_PATIENCE):
            while self.connected and self._queue:
                await self._sent.wait()

    def refuse(self) -> None:
        """End the connection in use; it is not dialled again at once."""
        self._refused = True
        self._in_use.cancel()

    async def attach(self, channel: Channel) -> None:
        """Use a channel until it is lost; one at a time, a newer one ends the older, which may be dead unnoticed."""
        self._in_use.cancel()
        async with self._attach:
            self._channel, self._greeted = channel, False
            self._moved.set()
            self._queue.clear()
            self._in_use = trio.CancelScope()
            try:
                with self._in_use:
                    await self._use(channel)
            finally:
                self._channel = None
                self._moved.set()
                self._sent_before += channel.bytes_sent
                self._received_before += channel.bytes_received
                self._listener.peer_lost()

    async def _use(self, channel: Channel) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_all, channel)
            await self._listener.peer_met()
            try:
                await self._receive_all(channel)
            except (PeerViolationError, RecordError, MessageTooLongError, TooSlowError, SilentPeerError) as error:
                await say_why(channel, farewell("malformed", self.peer, error))
                raise

    async def keep_dialling(self, dial: Callable[[], Awaitable[Channel]]) -> None:
        """Dial until the peer answers, use the channel, and start again when it is lost."""
        pause = 0.05
        while True:
            try:
                async with await dial() as channel:
                    pause = 0.05
                    await self.attach(channel)
            except* ChannelError as group:
                for error in leaves(group):
                    _log.info("link to %s: %s; next attempt in %.1f s", self.peer, error, pause)
            pause, self._refused = LONGEST_PAUSE if self._refused else pause, False
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _send_all(self, channel: Channel) -> None:
        while True:
            while self._queue:
                posted = self._queue[0]
                bulk = await posted.fetch()
                if bulk is not None:
                    parts = encode(posted.message, bulk)
                    await channel.send(*parts, pace=PACE)
                    self._tap.sent(self.peer, posted.message, sum(len(part) for part in parts), len(bulk))
                self._queue.popleft()
                self._sent.set()
            await self._posted.wait()

    async def _receive_all(self, channel: Channel) -> None:
        while True:
            await channel.awaited()
            data = await channel.receive(self._limit, pace=PACE)
            received = decode(data, FromPeer, self.peer)
            self._tap.received(self.peer, received.message, len(data))
            await self._listener.peer_said(received)
