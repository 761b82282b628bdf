"""A client's connection to one server: one request, one reply.

Rules: a reply is never taken for another request's, and no request waits for the reply to one that was cancelled: a
connection that broke, that may have carried half a request, or on which a reply is still owed, is replaced by a new
one. Every wait has an end: connecting takes no longer than the caller allows, a message under way does not stand still,
and a reply comes in time; where the caller sets no time, the server must give signs of life.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

import trio

from fsl_async.digests import Buffer
from fsl_async.errors import ChannelError, MisuseError
from transport import Channel, ConnectionLostError, Pace, UnansweredError
from transport.channel import CLOSE_PATIENCE

STANDSTILL = (20.0, 60.0)
"""Seconds for which a message under way may stand still: what is left of the time to wait, within these bounds."""


@dataclass(frozen=True)
class _Closed:
    """Not opened, or closed by its owner."""


@dataclass(frozen=True)
class _Lost:
    """There is no connection; the next request makes one."""


@dataclass(frozen=True)
class _Connected:
    """Connected, and every request has had its reply."""

    channel: Channel


_State: TypeAlias = _Closed | _Lost | _Connected


class ServerConnection:
    """Requests to one server, over one connection at a time.

    Args:
        dial: makes a connection.
        limit: the longest reply that any request can have, in bytes.
    """

    def __init__(self, dial: Callable[[], Awaitable[Channel]], limit: int) -> None:
        self._dial = dial
        self._limit = limit
        self._state: _State = _Closed()
        self._sent_before = self._received_before = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes sent over all connections so far: handshakes, framing and all."""
        return self._sent_before + (self._state.channel.bytes_sent if isinstance(self._state, _Connected) else 0)

    @property
    def bytes_received(self) -> int:
        """Bytes received over all connections so far: handshakes, framing and all."""
        now = self._state.channel.bytes_received if isinstance(self._state, _Connected) else 0
        return self._received_before + now

    async def open(self, until: float = inf) -> Channel:
        """The connection, made unless there is one.

        Args:
            until: when to stop trying, on trio's clock.

        Raises:
            UnansweredError: it is later than that.
            ChannelError: the server cannot be reached, or refuses; the class says which.
        """
        if isinstance(self._state, _Connected):
            return self._state.channel
        with trio.move_on_at(until):
            self._state = _Connected(await self._dial())
            return self._state.channel
        raise UnansweredError("no connection came about in this time")

    async def request(self, *parts: Buffer, until: float = inf, remind: Callable[[], None]) -> bytearray:
        """Send one request and return the reply to it.

        Args:
            parts: the request.
            until: when to stop waiting, on trio's clock; the time that the request took to be sent is added.
            remind: called whenever no reply has begun for a while more; see `Channel.awaited`.

        Raises:
            MisuseError: the connection is closed.
            UnansweredError: it is later than that, and no reply has begun.
            TooSlowError: request or reply stood still on its way.
            ChannelError: the connection was lost, or cannot be made again.
        """
        if isinstance(self._state, _Closed):
            raise MisuseError("not connected; use the client inside `async with`")
        channel = await self.open(until)
        try:
            began, pace = trio.current_time(), _moving(until)
            try:
                await channel.send(*parts, pace=pace)
            except ConnectionLostError:
                with trio.move_on_after(CLOSE_PATIENCE), suppress(ChannelError):  # the server may have said why
                    words = await channel.receive(self._limit)
                    await self.leave()
                    return words
                raise
            await channel.awaited(remind, until + trio.current_time() - began)
            return await channel.receive(self._limit, pace=pace)
        except BaseException:  # how much went out, and whether a reply will come, is unknown
            await self.leave()
            raise

    async def check(self, *parts: Buffer, until: float) -> None:
        """Give up a connection, if there is one, over which a question that is answered at once is not."""
        if isinstance(self._state, _Connected):
            with suppress(ChannelError):
                await self.request(*parts, until=until, remind=lambda: None)

    async def leave(self) -> None:
        """Leave a connection that the server ends; the next request makes another one."""
        await self._leave(_Lost())

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        await self._leave(_Closed())

    async def _leave(self, state: _Closed | _Lost) -> None:
        left, self._state = self._state, state
        if isinstance(left, _Connected):
            try:
                await left.channel.aclose()
            finally:
                self._sent_before += left.channel.bytes_sent
                self._received_before += left.channel.bytes_received


def _moving(until: float) -> Pace:
    """The pace of a message under way: as slow as the network likes, but it moves."""
    shortest, longest = STANDSTILL
    silence = max(shortest, min(until - trio.current_time(), longest))
    return Pace(bytes_per_second=0, message_seconds=inf, silence=silence)
