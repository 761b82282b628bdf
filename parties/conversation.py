"""One client's connection to a server: a request comes, its answer goes, again and again until one side closes.

Rules: a client that breaks the message rules loses its connection, nobody else does; whoever goes on beyond its limits
gets one last answer that says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from fsl_async.codec import decode, encode
from fsl_async.digests import Buffer
from fsl_async.messages import FromClient, Message
from parties.allowance import AbuseError
from transport import Channel, ChannelClosedError, Pace

__all__ = ["Answerer", "Conversation", "Reply"]

Reply: TypeAlias = tuple[Message, Buffer]
"""An answer, and the bulk data that goes with it."""

Sent: TypeAlias = Callable[[str, Message, int], None]
"""Hears of every answer sent: to whom, what, bytes of bulk."""


class Answerer(Protocol):
    """Carries out what clients ask for."""

    @property
    def longest_request(self) -> int:
        """The longest request that makes sense, in bytes."""

    async def reply(self, client: str, message: Any, bulk: memoryview) -> Reply:
        """Carry a request out; what is refused is answered with the reason.

        Raises:
            AbuseError: the client goes on beyond its limits; it carries the last answer.
            PeerViolationError: no client that keeps the protocol sends this.
        """


class Conversation:
    """Requests and answers over one channel."""

    def __init__(self, channel: Channel, client: str, answerer: Answerer, sent: Sent) -> None:
        self._channel = channel
        self._client = client
        self._answerer = answerer
        self._sent = sent

    async def run(self) -> None:
        """Answer requests until the client closes.

        Raises:
            PeerViolationError: the client broke the message rules.
            ChannelError: the connection was lost.
        """
        while True:
            try:
                data = await self._channel.receive(self._answerer.longest_request, pace=Pace())
            except ChannelClosedError:
                return
            message, bulk = decode(data, FromClient, self._client)
            try:
                reply, content = await self._answerer.reply(self._client, message, bulk)
            except AbuseError as abuse:
                await self._channel.send(*encode(abuse.message))
                raise
            await self._channel.send(*encode(reply, content))
            self._sent(self._client, reply, len(content))
