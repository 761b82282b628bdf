"""A client's connection to one server: one request, one reply.

Rules: a reply is never taken for another request's, and no request waits for the reply to one that was given up: a
connection that broke, that may have carried half a request, or on which a reply is still owed, is left for a new one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from fsl_async.digests import Buffer
from fsl_async.errors import MisuseError
from transport import Channel

__all__ = ["Line"]


@dataclass(frozen=True)
class _Closed:
    """Not opened, or closed by its owner."""


@dataclass(frozen=True)
class _Lost:
    """There is no connection; the next request makes one."""


@dataclass(frozen=True)
class _Clear:
    """Connected, and every request has had its reply."""

    channel: Channel


_Standing: TypeAlias = _Closed | _Lost | _Clear


class Line:
    """Requests to one server, over one connection at a time.

    Args:
        dial: makes a connection.
        limit: the longest reply that makes sense, in bytes.
    """

    def __init__(self, dial: Callable[[], Awaitable[Channel]], limit: int) -> None:
        self._dial = dial
        self._limit = limit
        self._standing: _Standing = _Closed()
        self._sent_before = self._received_before = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes sent over all connections so far: handshakes, framing and all."""
        return self._sent_before + (self._standing.channel.bytes_sent if isinstance(self._standing, _Clear) else 0)

    @property
    def bytes_received(self) -> int:
        """Bytes received over all connections so far: handshakes, framing and all."""
        now = self._standing.channel.bytes_received if isinstance(self._standing, _Clear) else 0
        return self._received_before + now

    async def open(self) -> None:
        """Connect, unless connected.

        Raises:
            ChannelError: the server cannot be reached, or refuses; the class says which.
        """
        await self._connected()

    async def request(self, *parts: Buffer) -> bytearray:
        """Send one request and return the reply to it.

        Raises:
            MisuseError: the line is closed.
            ChannelError: the connection was lost, or cannot be made again.
        """
        if isinstance(self._standing, _Closed):
            raise MisuseError("not connected; use the client inside `async with`")
        channel = await self._connected()
        try:
            await channel.send(*parts)
            return await channel.receive(self._limit)
        except BaseException:  # nobody knows how much went out, or whether a reply is to come
            await self._leave(_Lost())
            raise

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        await self._leave(_Closed())

    async def _connected(self) -> Channel:
        match self._standing:
            case _Clear(channel=channel):
                return channel
            case _Closed() | _Lost():
                channel = await self._dial()
                self._standing = _Clear(channel)
                return channel

    async def _leave(self, standing: _Closed | _Lost) -> None:
        left, self._standing = self._standing, standing
        if isinstance(left, _Clear):
            try:
                await left.channel.aclose()
            finally:
                self._sent_before += left.channel.bytes_sent
                self._received_before += left.channel.bytes_received
