"""What transports over the system's sockets share: streams, accepting, and how many descriptors connections take."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from transport.limits import Limits

if TYPE_CHECKING:
    from typing_extensions import Buffer

_log = logging.getLogger("transport")

_ACCEPT_AGAIN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED}
_ACCEPT_PAUSE = 0.1
_SHARE = 2
"""Connections may take one in so many of a process's descriptors; handshakes one in `_HANDSHAKES_SHARE`."""
_HANDSHAKES_SHARE = 8


class PromptStream(trio.abc.Stream):
    """A stream that also does at once what can be done at once.

    Most messages are there in one piece, or leave in one: then nothing waits, so that nobody has to be scheduled.
    """

    @abstractmethod
    def send_now(self, data: Buffer) -> int:
        """Sends what leaves at once, and returns how many bytes that is."""

    @abstractmethod
    def receive_now(self, most: int) -> bytes | None:
        """Returns what is there, up to `most` bytes; None where nothing is, and no byte at the end of the stream."""

    @abstractmethod
    def wake_at(self, size: int) -> None:
        """Asks to wake a reader when so many bytes are there."""


class SocketStream(PromptStream):
    """A connection over one of the system's sockets.

    Args:
        stream: trio's stream over the connection; this one takes its socket.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        family, kind, number = stream.socket.family, stream.socket.type, stream.socket.proto
        self._socket = socket.socket(family, kind, number, stream.socket.detach())
        self._socket.setblocking(False)
        self._wakes_at = 1

    def send_now(self, data: Buffer) -> int:
        """Sends what the system takes at once; see `PromptStream.send_now`."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise _gone(error) from error

    def receive_now(self, most: int) -> bytes | None:
        """Returns what is there; see `PromptStream.receive_now`."""
        try:
            return self._socket.recv(most)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _gone(error) from error

    def wake_at(self, size: int) -> None:
        """Asks the system to wake a reader when so many bytes are there; see `SO_RCVLOWAT` in socket(7)."""
        if size != self._wakes_at:
            self._wakes_at = size
            with suppress(OSError):  # a system that cannot wakes us for less
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    async def send_all(self, data: Buffer) -> None:
        """Sends all of `data`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        with memoryview(data) as view:
            sent = self.send_now(view)
            if sent == len(view):
                await trio.lowlevel.cancel_shielded_checkpoint()
            while sent < len(view):
                await self.wait_send_all_might_not_block()
                sent += self.send_now(view[sent:])

    async def wait_send_all_might_not_block(self) -> None:
        """Waits until there is room."""
        await trio.lowlevel.wait_writable(self._still_open())

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Returns what is there, at least one byte; none at the end of the stream."""
        data = None
        while data is None:
            await trio.lowlevel.wait_readable(self._still_open())
            data = self.receive_now(max_bytes or 2**16)
        return data

    async def aclose(self) -> None:
        """Closes the connection; whoever waits for it is told."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
        await trio.lowlevel.checkpoint()

    def _still_open(self) -> socket.socket:
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError("this end is closed")
        return self._socket


def _gone(error: OSError) -> Exception:
    """The error of a stream's that stands for one of the system's."""
    kind = trio.ClosedResourceError if error.errno == errno.EBADF else trio.BrokenResourceError
    return kind(f"socket connection broken: {error}")


async def accept(
    listening: trio.SocketListener, origin: Callable[[trio.SocketStream], str]
) -> tuple[trio.SocketStream, str]:
    """Returns the next connection to a listening socket, and what limits count it under.

    Args:
        listening: the socket.
        origin: says what limits count a connection under; raises `OSError` if the peer has left.
    """
    while True:
        try:
            stream = await listening.accept()
        except OSError as error:
            if error.errno not in _ACCEPT_AGAIN:
                raise
            await trio.sleep(_ACCEPT_PAUSE)
            continue
        try:
            return stream, origin(stream)
        except OSError:  # the peer left before we could ask who it is
            await stream.aclose()


async def accept_from(
    listening: trio.SocketListener, origin: Callable[[trio.SocketStream], str]
) -> tuple[SocketStream, str]:
    """Returns what `accept` does, as a stream that does at once what it can."""
    stream, counted_as = await accept(listening, origin)
    return SocketStream(stream), counted_as


def within_descriptors(limits: Limits) -> Limits:
    """Lowers connections and handshakes, with a warning, to the shares of the descriptors that they may have."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits
    lowered = replace(
        limits,
        connections=max(1, min(limits.connections, descriptors // _SHARE)),
        half_open=max(1, min(limits.half_open, descriptors // _HANDSHAKES_SHARE)),
    )
    if lowered != limits:
        _log.warning(
            "this process may open %d descriptors: %d connections and %d handshakes at a time instead of %d and %d; "
            "raise the limit (ulimit -n, LimitNOFILE)",
            descriptors,
            lowered.connections,
            lowered.half_open,
            limits.connections,
            limits.half_open,
        )
    return lowered
