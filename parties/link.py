"""The connection between the two servers, kept alive.

S1 dials S0, again and again until it answers; messages leave in the order in which they were posted. A lost connection
loses what was queued: each time the servers meet, `meet` is told, and the actor posts again what its state says the
peer may lack. So nothing here needs to remember.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from fsl_async.codec import Received, decode, encode
from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError
from fsl_async.messages import FromPeer, Message
from transport import Channel

__all__ = ["PeerLink"]

_log = logging.getLogger("parties.link")

LONGEST_PAUSE = 5.0
FLUSH_PATIENCE = 1.0

Deliver: TypeAlias = Callable[[Received], Awaitable[None]]
Meet: TypeAlias = Callable[[], Awaitable[None]]


class PeerLink:
    """Messages to and from the other server.

    Args:
        peer: its name, for messages.
        limit: the longest message it may send, in bytes.
        deliver: takes each message of the peer's, in order.
        meet: called each time a connection stands.
    """

    def __init__(self, peer: str, limit: int, deliver: Deliver, meet: Meet) -> None:
        self.peer = peer
        self.connected = False
        self._limit = limit
        self._deliver = deliver
        self._meet = meet
        self._queue: deque[list[Buffer]] = deque()
        self._posted = trio.Event()
        self._sent = trio.Event()
        self._attach = trio.Lock()
        self._standing: list[Channel] = []
        self._sent_before = 0
        self._received_before = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to the peer so far, over all connections: handshakes, framing and all."""
        return self._sent_before + sum(channel.bytes_sent for channel in self._standing)

    @property
    def bytes_received(self) -> int:
        """Bytes received from the peer so far, over all connections: handshakes, framing and all."""
        return self._received_before + sum(channel.bytes_received for channel in self._standing)

    def post(self, message: Message, *bulk: Buffer) -> None:
        """Queue a message; it is dropped if no connection stands, for `meet` will tell when one does."""
        if self.connected:
            self._queue.append(encode(message, *bulk))
            self._posted.set()

    async def flush(self) -> None:
        """Wait until all that was posted has left, but no longer than `FLUSH_PATIENCE` seconds."""
        with trio.move_on_after(FLUSH_PATIENCE):
            while self.connected and self._queue:
                await self._sent.wait()

    async def attach(self, channel: Channel) -> None:
        """Use a channel until it is lost; one at a time, a newer one waits for the older one's end."""
        async with self._attach:
            self.connected = True
            self._standing.append(channel)
            self._queue.clear()
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._send_all, channel)
                    await self._meet()
                    await self._receive_all(channel)
            finally:
                self.connected = False
                self._standing.remove(channel)
                self._sent_before += channel.bytes_sent
                self._received_before += channel.bytes_received

    async def keep_dialling(self, dial: Callable[[], Awaitable[Channel]]) -> None:
        """Dial until the peer answers, use the channel, and start again when it is lost."""
        pause = 0.05
        while True:
            try:
                async with await dial() as channel:
                    pause = 0.05
                    await self.attach(channel)
            except* ChannelError as group:
                for error in _leaves(group):
                    _log.info("link to %s: %s; next attempt in %.1f s", self.peer, error, pause)
            await trio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _send_all(self, channel: Channel) -> None:
        while True:
            while self._queue:
                await channel.send(*self._queue[0])
                self._queue.popleft()
                sent, self._sent = self._sent, trio.Event()
                sent.set()
            self._posted = trio.Event()
            await self._posted.wait()

    async def _receive_all(self, channel: Channel) -> None:
        while True:
            data = await channel.receive(self._limit)
            await self._deliver(decode(data, FromPeer, self.peer))


def _leaves(group: BaseExceptionGroup[ChannelError]) -> list[BaseException]:
    leaves: list[BaseException] = []
    for error in group.exceptions:
        leaves.extend(_leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return leaves
