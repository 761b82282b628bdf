"""A client's connection to one server: one request, one reply.

Rules: a reply is never taken for another request's. The reply to a request that was cancelled is read and dropped
before the next request goes out; a connection that broke, or that may have carried half a request, is replaced by a
new one.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, MisuseError
from transport import Channel

__all__ = ["Line"]


class _Standing(enum.Enum):
    CLOSED = enum.auto()
    """Not opened, or closed by its owner."""
    LOST = enum.auto()
    """The connection broke; the next request makes a new one."""
    CLEAR = enum.auto()
    """Connected, and every request has had its reply."""
    OWED = enum.auto()
    """Connected, and the last request's reply is still to come."""


class Line:
    """Requests to one server, over one connection at a time.

    Args:
        dial: makes a connection.
        limit: the longest reply that makes sense, in bytes.
    """

    def __init__(self, dial: Callable[[], Awaitable[Channel]], limit: int) -> None:
        self._dial = dial
        self._limit = limit
        self._channels: list[Channel] = []
        self._standing = _Standing.CLOSED

    @property
    def bytes_sent(self) -> int:
        """Bytes sent over all connections so far: handshakes, framing and all."""
        return sum(channel.bytes_sent for channel in self._channels)

    @property
    def bytes_received(self) -> int:
        """Bytes received over all connections so far: handshakes, framing and all."""
        return sum(channel.bytes_received for channel in self._channels)

    async def open(self) -> None:
        """Connect, unless connected.

        Raises:
            ChannelError: the server cannot be reached, or refuses; the class says which.
        """
        if self._standing in (_Standing.CLOSED, _Standing.LOST):
            self._channels.append(await self._dial())
            self._standing = _Standing.CLEAR

    async def request(self, *parts: Buffer) -> bytearray:
        """Send one request and return the reply to it.

        Raises:
            MisuseError: the line is closed.
            ChannelError: the connection was lost, or cannot be made again.
        """
        if self._standing is _Standing.CLOSED:
            raise MisuseError("not connected; use the client inside `async with`")
        await self.open()
        if self._standing is _Standing.OWED:
            await self._reply()
        try:
            await self._channels[-1].send(*parts)
        except BaseException:  # nobody knows how much of it went out
            await self._leave(_Standing.LOST)
            raise
        self._standing = _Standing.OWED
        return await self._reply()

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        await self._leave(_Standing.CLOSED)

    async def _reply(self) -> bytearray:
        try:
            data = await self._channels[-1].receive(self._limit)
        except ChannelError:
            await self._leave(_Standing.LOST)
            raise
        self._standing = _Standing.CLEAR
        return data

    async def _leave(self, standing: _Standing) -> None:
        connected = self._standing in (_Standing.CLEAR, _Standing.OWED)
        self._standing = standing
        if connected:
            await self._channels[-1].aclose()
