"""A byte stream that counts its bytes and raises this package's errors.

This is the one place where trio's stream errors are translated. All transports run over it.

A reader says how many bytes it needs to continue. On a socket the kernel then wakes us once so many are there, or the
stream has ended, so a peer that sends byte by byte costs no more than any other.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import trio

from transport.errors import ChannelClosedError, ConnectionLostError
from transport.sockets import PromptStream

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Wire:
    """Wraps any `trio.abc.Stream`.

    Attributes:
        steady: whether the peer cannot vanish unnoticed.
        bytes_sent: bytes handed to the stream so far.
        bytes_received: bytes taken from the stream so far.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._prompt = stream if isinstance(stream, PromptStream) else None
        self.steady: bool = getattr(stream, "steady", False)
        self.bytes_sent = 0
        self.bytes_received = 0

    def send_now(self, data: Buffer) -> int:
        """Sends what leaves at once, and returns how many bytes that is: none where the stream cannot say.

        Raises:
            ConnectionLostError: the connection is gone.
            ChannelClosedError: we closed it.
        """
        if self._prompt is None:
            return 0
        with _TRANSLATED:
            sent = self._prompt.send_now(data)
        self.bytes_sent += sent
        return sent

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Sends all of `data`; if it is cancelled half-way, it is unknown how much was sent.

        Raises:
            ConnectionLostError: the connection is gone.
            ChannelClosedError: we closed it.
        """
        with _TRANSLATED:
            await self._stream.send_all(data)
        self.bytes_sent += len(data)

    async def send_short(self, data: bytes | bytearray | memoryview) -> None:
        """Sends a few bytes as `send` does; nobody else goes on meanwhile if they leave at once.

        Raises:
            ConnectionLostError: the connection is gone.
            ChannelClosedError: we closed it.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        sent = self.send_now(data)
        if sent < len(data):
            await self.send(memoryview(data)[sent:])

    async def until_writable(self) -> None:
        """Waits until a few bytes can be sent at once; if it is cancelled, nothing has happened.

        Raises:
            ConnectionLostError: the connection is gone.
            ChannelClosedError: we closed it.
        """
        with _TRANSLATED:
            await self._stream.wait_send_all_might_not_block()

    def receive_now(self, most: int) -> bytes | None:
        """Returns what `receive_some` does if it is there; None where nothing is, or the stream cannot say.

        Raises:
            ConnectionLostError: the connection is gone.
            ChannelClosedError: we closed it.
        """
        if self._prompt is None:
            return None
        with _TRANSLATED:
            data = self._prompt.receive_now(most)
        self.bytes_received += len(data or b"")
        return data

    async def receive_some(self, most: int, needed: int = 1) -> bytes:
        """Returns at least one and at most `most` bytes; no byte means the end of the stream.

        If it is cancelled, it has read nothing.

        Args:
            most: bytes to take at most.
            needed: bytes without which the reader cannot continue, and which the peer is going to send; fewer may be
                returned all the same.

        Raises:
            ConnectionLostError: the connection is gone.
            ChannelClosedError: we closed it.
        """
        if self._prompt is not None:
            self._prompt.wake_at(needed)
        with _TRANSLATED:
            data = bytes(await self._stream.receive_some(most))
        self.bytes_received += len(data)
        return data

    async def receive_exactly(self, size: int) -> bytes:
        """Returns the next `size` bytes and takes none beyond them.

        Raises:
            ConnectionLostError: the stream ended before.
            ChannelClosedError: we closed it.
        """
        data = b""
        while len(data) < size:
            missing = size - len(data)
            more = self.receive_now(missing)
            if more is None:
                more = await self.receive_some(missing, needed=missing)
            if not more:
                raise ConnectionLostError(f"the stream ended after {len(data)} of {size} expected bytes")
            data += more
        return data

    async def aclose(self) -> None:
        """Closes the stream; a second time does nothing."""
        await self._stream.aclose()


class _Translated:
    """Raises this package's errors in the place of trio's; without a generator, because every call goes through it."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        match error:
            case trio.ClosedResourceError():
                raise ChannelClosedError("this side has closed the channel") from error
            case trio.BrokenResourceError():
                raise ConnectionLostError("the connection broke: the peer vanished or the network did") from error


_TRANSLATED = _Translated()
