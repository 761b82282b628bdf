"""A channel: whole messages to and from one authenticated peer.

`Channel` is what parties see; `SecureChannel` implements it with records over any stream.

Cancellation, which any of these coroutines takes at any checkpoint:

- A `send` that is cancelled while it waits for its turn has done nothing. One that is cancelled once its first bytes
  may be out cannot know how many are: the channel is broken for sending, and every later `send` says so.
- A `receive` that is cancelled loses nothing. What has arrived stays with the channel, and the next `receive` goes
  on where it stopped.

A receiver's failure breaks the channel as well: after forged, cut or ill-formed records nothing is given out any more.
A message that is refused for its length or its pace is merely not taken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from fsl_async.errors import ChannelError, MisuseError
from transport.errors import ChannelClosedError, MessageTooLongError, TooSlowError
from transport.preamble import Role
from transport.records import Announced, Body, Event, NeedData, RecordReader, RecordWriter
from transport.wire import Wire

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CLOSE_PATIENCE", "UNHURRIED", "Channel", "Introduction", "Pace", "SecureChannel"]

CLOSE_PATIENCE = 1.0
"""Seconds that `aclose` waits for a peer that does not read before it leaves without CLOSE."""

_READ_SIZE = 2**16


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a peer must deliver a message once it has begun.

    Attributes:
        bytes_per_second: the least mean rate, counted from the start of `receive`; 0 demands nothing.
        grace: seconds in which the rate is not yet judged.
    """

    bytes_per_second: float = 8_192
    grace: float = 5.0

    def latest_progress(self, started: float, received: int) -> float:
        """Returns the time by which more must have come, on the clock that gave `started`."""
        if not self.bytes_per_second:
            return float("inf")
        return started + max(self.grace, received / self.bytes_per_second)


UNHURRIED = Pace(bytes_per_second=0)
"""No pace at all."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a handshake has established; none of it is secret to the two ends.

    Attributes:
        peer_key: the other side's static X25519 key, authenticated.
        peer_role: the role the other side claims; only `peer_key` proves anything.
        peer_payload: what the other side said in its handshake message.
        handshake_hash: identifies the session; the same on both sides.
        welcome: the server's words of admission.
    """

    peer_key: bytes
    peer_role: Role
    peer_payload: bytes
    handshake_hash: bytes
    welcome: bytes


class Channel(ABC):
    """Whole messages to and from one authenticated peer; an async context manager that closes itself.

    Attributes:
        peer_key: the other side's static X25519 public key.
        handshake_hash: identifies the session; the same on both sides, never the same twice.
    """

    peer_key: bytes
    handshake_hash: bytes

    @property
    @abstractmethod
    def bytes_sent(self) -> int:
        """Bytes sent on the wire since the connection was made: handshake, framing and all."""

    @property
    @abstractmethod
    def bytes_received(self) -> int:
        """Bytes received from the wire since the connection was made: handshake, framing and all."""

    @abstractmethod
    async def send(self, *parts: Buffer) -> None:
        """Sends one message: the parts' concatenation, which is never built.

        Several tasks may send; their messages go out one after the other. The parts must not change meanwhile.

        Raises:
            MisuseError: a part is not a contiguous buffer.
            ChannelError: the connection is lost, closed or broken.
        """

    @abstractmethod
    async def announced(self) -> int:
        """Waits for the next message to begin and returns its length in bytes; the message stays to be received.

        Raises:
            ChannelError: there is no next message: the channel was closed, lost or broken.
        """

    @abstractmethod
    async def receive(self, limit: int, *, pace: Pace = UNHURRIED) -> bytearray:
        """Returns the next message.

        Args:
            limit: the longest message to accept, in bytes.
            pace: how fast the peer must deliver it from now on, once it has begun.

        Raises:
            MessageTooLongError: it is announced with more; nothing has been taken or allocated.
            TooSlowError: the peer fell below the pace.
            MisuseError: another task is receiving.
            ChannelError: the channel was closed, lost or broken.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Says CLOSE if that is possible within `CLOSE_PATIENCE`, and closes; a second time does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


@dataclass(frozen=True, slots=True)
class _Quiet:
    """No message has been announced."""


@dataclass(slots=True)
class _Arriving:
    """A message under way: room for all of it, of which the first `filled` bytes have come."""

    content: bytearray
    filled: int = 0

    def add(self, data: memoryview) -> None:
        self.content[self.filled : self.filled + len(data)] = data
        self.filled += len(data)


class _Stopwatch:
    """Knows until when a peer that must keep a pace may be silent."""

    def __init__(self, pace: Pace, wire: Wire) -> None:
        self._pace = pace
        self._wire = wire
        self._started = trio.current_time()
        self._received_before = wire.bytes_received

    @property
    def received(self) -> int:
        return self._wire.bytes_received - self._received_before

    @property
    def deadline(self) -> float:
        return self._pace.latest_progress(self._started, self.received)

    def too_slow(self) -> TooSlowError:
        seconds = trio.current_time() - self._started
        return TooSlowError(
            f"the peer delivered {self.received:,} bytes of a message in {seconds:.1f} s, "
            f"at least {self._pace.bytes_per_second:,.0f} bytes per second are expected"
        )


class SecureChannel(Channel):
    """A channel of records over a wire, after a handshake.

    Attributes:
        introduction: what the handshake established.
    """

    def __init__(self, wire: Wire, writer: RecordWriter, reader: RecordReader, introduction: Introduction) -> None:
        self.introduction = introduction
        self.peer_key = introduction.peer_key
        self.handshake_hash = introduction.handshake_hash
        self._wire = wire
        self._writer = writer
        self._reader = reader
        self._sending = trio.Lock()
        self._receiving = trio.Lock()
        self._message: _Quiet | Announced | _Arriving = _Quiet()

    def __repr__(self) -> str:
        return f"<SecureChannel to {self.introduction.peer_role.name} {self.peer_key.hex()}>"

    @property
    def bytes_sent(self) -> int:
        """Bytes sent on the wire since the connection was made: handshake, framing and all."""
        return self._wire.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes received from the wire since the connection was made: handshake, framing and all."""
        return self._wire.bytes_received

    async def send(self, *parts: Buffer) -> None:
        """Sends one message; see `Channel.send`."""
        records = self._writer.message(parts)
        async with self._sending:
            with self._whole_or_broken():
                for record in records:
                    await self._wire.send(record)

    async def ping(self) -> None:
        """Sends a record that the peer ignores, to keep the connection in use.

        Raises:
            ChannelError: the connection is lost, closed or broken.
        """
        async with self._sending:
            with self._whole_or_broken():
                await self._wire.send(self._writer.ping())

    async def announced(self) -> int:
        """Waits for the next message to begin and returns its length; see `Channel.announced`."""
        with self._sole_receiver():
            await trio.lowlevel.checkpoint()
            return await self._announcement()

    async def receive(self, limit: int, *, pace: Pace = UNHURRIED) -> bytearray:
        """Returns the next message; see `Channel.receive`."""
        with self._sole_receiver():
            await trio.lowlevel.checkpoint()
            total = await self._announcement()
            if total > limit:
                raise MessageTooLongError(total, limit)
            arriving = self._message if isinstance(self._message, _Arriving) else _Arriving(bytearray(total))
            self._message = arriving
            stopwatch = _Stopwatch(pace, self._wire)
            while isinstance(event := await self._next_event(stopwatch), Body):
                arriving.add(event.data)
            self._message = _Quiet()
            return arriving.content

    async def aclose(self) -> None:
        """Says CLOSE if possible, and closes; see `Channel.aclose`."""
        try:
            with trio.move_on_after(CLOSE_PATIENCE), suppress(ChannelError):
                async with self._sending:
                    with self._whole_or_broken():
                        await self._wire.send(self._writer.close())
        finally:
            await self._wire.aclose()

    @contextmanager
    def _whole_or_broken(self) -> Iterator[None]:
        """Breaks the sending direction unless all of what it guards went out."""
        try:
            yield
        except BaseException:
            self._writer.abandon("a message could not be sent as a whole")
            raise

    @contextmanager
    def _sole_receiver(self) -> Iterator[None]:
        try:
            self._receiving.acquire_nowait()
        except trio.WouldBlock:
            raise MisuseError("another task is receiving from this channel; only one may") from None
        try:
            yield
        finally:
            self._receiving.release()

    async def _announcement(self) -> int:
        match self._message:
            case Announced(total=total):
                return total
            case _Arriving(content=content):
                return len(content)
            case _Quiet():
                return await self._next_announcement()

    async def _next_announcement(self) -> int:
        match await self._next_event(_Stopwatch(UNHURRIED, self._wire)):
            case Announced(total=total) as announcement:
                self._message = announcement
                return total
            case _:
                raise ChannelClosedError("the peer has closed the channel; there is no further message")

    async def _next_event(self, stopwatch: _Stopwatch) -> Event:
        """Reads until there is an event; a failure breaks both directions."""
        try:
            while isinstance(event := self._reader.next_event(), NeedData):
                await self._read_more(stopwatch)
        except TooSlowError:
            raise
        except ChannelError as error:
            self._writer.abandon(str(error))
            raise
        return event

    async def _read_more(self, stopwatch: _Stopwatch) -> None:
        with trio.move_on_at(stopwatch.deadline) as scope:
            data = await self._wire.receive_some(_READ_SIZE)
        if scope.cancelled_caught:
            raise stopwatch.too_slow()
        if data:
            self._reader.feed(data)
        else:
            self._reader.feed_end()
