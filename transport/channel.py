"""A channel: whole messages to and from one authenticated peer.

Its messages are records over any stream. Cancellation, which any of these coroutines takes at any checkpoint:

- A `send` that is cancelled while it waits for its turn has done nothing. One that is cancelled once its first bytes
  may be out cannot know how many are: the channel is broken for sending, and every later `send` says so.
- A `receive` that is cancelled loses nothing. What has arrived stays with the channel, and the next `receive` resumes
  there.
- A `discard` that is cancelled is finished by the next call that reads.

A wait for a message that may take long is a call of `awaited`: it sends signs of life (PING records), which a peer that
only receives sends with `beat`, and takes a peer that sends none for lost. That detects a network that drops
everything, and a peer that hangs while its system still acknowledges what comes. TCP detects neither, or only after
very long.

A failure to receive breaks the channel as well: after forged, cut or malformed records no more messages are returned.
Only to a peer that broke the rules of records, or is silent, can something be sent even then: why it is over.
A message that is refused because of its length or its pace is only left unread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from fsl_async.errors import ChannelError, MisuseError
from transport.arriving import (
    UNHURRIED,
    Arriving,
    Pace,
    Passing,
    Progress,
    Quiet,
    Room,
    Stopwatch,
    endless,
    make_room,
    unseen,
)
from transport.errors import (
    ChannelBrokenError,
    ChannelClosedError,
    MessageTooLongError,
    RecordError,
    SilentPeerError,
    UnansweredError,
)
from transport.preamble import Role
from transport.records import RECORD_SIZE, Announced, Event, NeedData, RecordReader, RecordWriter
from transport.wire import Wire

if TYPE_CHECKING:
    from typing_extensions import Buffer


CLOSE_PATIENCE = 1.0
"""Seconds that `aclose` waits for a peer that does not read, before it closes without CLOSE."""

HEARTBEAT = 10.0
"""Seconds between two signs of life."""

SILENCE = 40.0
"""Seconds without a byte from a peer that should send signs of life, after which it is taken for lost."""

REMINDER = 30.0
"""Seconds of waiting after which `awaited` calls `remind`, again and again."""

_NEVER = float("inf")

_BEATS_BEFORE_REMINDER = round(REMINDER / HEARTBEAT)

_RECORDS_AT_ONCE = 4
_READ_SIZE = _RECORDS_AT_ONCE * (2 + RECORD_SIZE)
"""Bytes of so many records: what has been read and not taken, at most."""

GATHERING = 0.02
"""Seconds for which the bytes of a message that arrives fast may gather, so that one read takes them."""

_QUICK = 2**15
"""Bytes of one read from which on a message counts as arriving fast."""

_SENT_AT_ONCE = 2 * (2 + RECORD_SIZE)
"""Bytes of a message that are sent without letting others go on, if the system takes them."""

_SWIFT = 0.1
"""Seconds within which records must leave, so that more of them are sent together next time."""


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a handshake has established. Both ends know all of it; others may not know the payload.

    Attributes:
        peer_key: the other side's static X25519 key, authenticated.
        peer_role: the role the other side claims; only `peer_key` proves anything.
        peer_payload: what the other side said in its handshake message.
        handshake_hash: identifies the session; the same on both sides.
        welcome: the text with which the server let the client in.
    """

    peer_key: bytes
    peer_role: Role
    peer_payload: bytes = field(repr=False)
    handshake_hash: bytes
    welcome: bytes


class Channel:
    """Whole messages to and from one authenticated peer; an async context manager that closes itself.

        async with await transport.dial(address, server_key, settings) as channel:
            await channel.send(b"head", bulk)           # one message of both parts
            answer = await channel.receive(limit=10**6)     # a bytearray of at most so many bytes

    Attributes:
        introduction: what the handshake established.
        peer_key: the other side's static X25519 public key.
        handshake_hash: identifies the session; the same on both sides, never the same twice.
    """

    def __init__(self, wire: Wire, writer: RecordWriter, reader: RecordReader, introduction: Introduction) -> None:
        self.introduction = introduction
        self.peer_key = introduction.peer_key
        self.handshake_hash = introduction.handshake_hash
        self._wire = wire
        self._heartbeat = _NEVER if wire.steady else HEARTBEAT
        self._writer = writer
        self._reader = reader
        self._sending = trio.Lock()
        self._sole_receiver = _SoleReceiver()
        self._last_read = 0
        self._read_at_once = False
        self._message: Quiet | Announced | Arriving | Passing = Quiet()
        self._has_waited = False
        self._closed_here = False

    def __repr__(self) -> str:
        return f"<Channel to {self.introduction.peer_role.name} {self.peer_key.hex()}>"

    @property
    def bytes_sent(self) -> int:
        """Bytes sent on the wire since the connection was made: handshake, framing and all."""
        return self._wire.bytes_sent

    @property
    def bytes_received(self) -> int:
        """Bytes received from the wire since the connection was made: handshake, framing and all."""
        return self._wire.bytes_received

    @property
    def steady(self) -> bool:
        """Whether the peer shares this process and cannot vanish, so that neither side shows signs of life."""
        return self._wire.steady

    async def send(self, *parts: Buffer, pace: Pace = UNHURRIED, progress: Progress = unseen) -> None:
        """Sends one message: the parts' concatenation, which is never built.

        Several tasks may send; their messages go out one after the other. The parts must not change meanwhile.

        Args:
            parts: C-contiguous buffers of plain items.
            pace: how fast the peer must take it, from its first byte on.
            progress: called with the bytes sent so far, of the message and its records.

        Raises:
            TooSlowError: the peer fell below the pace.
            MisuseError: a part is not a contiguous buffer.
            ChannelError: the connection is lost, closed or broken.
        """
        records = self._writer.message(parts)
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._turn_to_send()
        try:
            sent, together, stopwatch = 0, 1, None
            while some := records.take(together):
                sent += len(some)
                left = self._wire.send_now(some) if sent <= _SENT_AT_ONCE else 0
                swift = left == len(some)
                if not swift:
                    stopwatch = stopwatch or self._stopwatch(pace, records.total)
                    swift = await self._send_by(stopwatch, sent, memoryview(some)[left:])
                progress(sent)
                together = min(2 * together, _RECORDS_AT_ONCE) if swift else 1
        except BaseException:
            self._not_whole()
            raise
        finally:
            self._sending.release()

    async def ping(self) -> None:
        """Sends a record that the peer ignores, to keep the connection in use.

        Raises:
            SilentPeerError: it could not be sent for `SILENCE` seconds: the peer reads nothing.
            ChannelError: the connection is lost, closed or broken.
        """
        async with self._sending:
            with trio.move_on_after(SILENCE) as scope:
                await self._wire.until_writable()
            if scope.cancelled_caught:
                raise SilentPeerError(f"the peer has taken nothing for {SILENCE:g} s, not even a sign of life")
            try:
                with trio.CancelScope(shield=True):  # so few bytes leave at once, even if we are cancelled
                    await self._wire.send(self._writer.ping())
            except BaseException:
                self._not_whole()
                raise

    async def announced(self, *, pace: Pace = UNHURRIED) -> int:
        """Waits for the next message to begin and returns its length in bytes; the message stays to be received.

        Args:
            pace: how fast the peer must deliver the message's beginning, from its first byte on.

        Raises:
            TooSlowError: the peer fell below the pace.
            MisuseError: another task is receiving.
            ChannelError: there is no next message: the channel was closed, lost or broken.
        """
        with self._sole_receiver:
            await trio.lowlevel.checkpoint_if_cancelled()
            announced = await self._announcement(pace)
            await self._let_others_go()
            return announced.total

    async def awaited(self, remind: Callable[[], None] = _nothing, until: float = _NEVER) -> int:
        """Waits as `announced` does, for as long as the peer lives: both sides send signs of life.

        Args:
            remind: called whenever nothing has begun for `REMINDER` seconds more.
            until: when to stop waiting, on trio's clock.

        Raises:
            UnansweredError: it is later than that.
            SilentPeerError: nothing has come for `SILENCE` seconds, not even a sign of life.
            MisuseError: another task is receiving.
            ChannelError: there is no next message: the channel was closed, lost or broken.
        """
        heard, heard_at = self.bytes_received, trio.current_time()
        beats = 0
        while True:
            with trio.move_on_at(min(until, trio.current_time() + self._heartbeat)):
                return await self.announced()
            if trio.current_time() >= until:
                raise UnansweredError("no answer came in this time")
            beats += 1
            if beats % _BEATS_BEFORE_REMINDER == 0:
                remind()
            if self.bytes_received != heard:
                heard, heard_at = self.bytes_received, trio.current_time()
            elif trio.current_time() - heard_at >= SILENCE:
                self._reader.abandon(SilentPeerError(f"nothing has come for {SILENCE:g} s, not even a sign of life"))
            with trio.move_on_at(until):
                await self.ping_unless_sending()

    async def ping_unless_sending(self) -> None:
        """Sends what `ping` does, where no bytes are going out that are a sign of life themselves."""
        if not self._sending.locked():
            await self.ping()

    async def beat(self) -> None:
        """Sends signs of life while the peer waits for us; ends when it is cancelled or the channel is lost."""
        with suppress(ChannelError):
            while True:
                await trio.sleep(self._heartbeat)
                await self.ping_unless_sending()

    async def beginning(self, size: int, *, pace: Pace = UNHURRIED) -> bytes:
        """Returns the first bytes of the next message; the message stays to be received, from its first byte on.

        Args:
            size: how many; the whole message if it has fewer.
            pace: how fast the peer must deliver them, once the message has begun.

        Raises:
            TooSlowError: the peer fell below the pace.
            MisuseError: another task is receiving.
            ChannelError: the channel was closed, lost or broken.
        """
        with self._sole_receiver:
            await trio.lowlevel.checkpoint_if_cancelled()
            arriving = self._arriving(await self._announcement(pace))
            size = min(size, arriving.total)
            await self._take(arriving, pace, until=size)
            await self._let_others_go()
            return bytes(memoryview(arriving.content)[:size])

    async def receive(self, limit: int, *, pace: Pace = UNHURRIED, room: Room = endless) -> bytearray:
        """Returns the next message.

        Args:
            limit: the longest message to accept, in bytes.
            pace: how fast the peer must deliver it from now on, once it has begun.
            room: called before more memory is reserved; what it waits does not count against the peer's pace.

        Raises:
            MessageTooLongError: the message is longer; nothing has been read or allocated.
            TooSlowError: the peer fell below the pace.
            MisuseError: another task is receiving.
            ChannelError: the channel was closed, lost or broken.
        """
        with self._sole_receiver:
            await trio.lowlevel.checkpoint_if_cancelled()
            announced = await self._announcement(pace)
            if announced.total > limit:
                raise MessageTooLongError(announced.total, limit)
            arriving = self._arriving(announced)
            await self._take(arriving, pace, room)
            await self._let_others_go()
            self._end_message()
            return arriving.content

    async def discard(self, *, pace: Pace = UNHURRIED) -> None:
        """Reads the next message and drops it, in constant memory.

        Args:
            pace: how fast the peer must deliver it from now on, once it has begun.

        Raises:
            TooSlowError: the peer fell below the pace.
            MisuseError: another task is receiving.
            ChannelError: the channel was closed, lost or broken.
        """
        with self._sole_receiver:
            await trio.lowlevel.checkpoint_if_cancelled()
            arriving = self._arriving(await self._announcement(pace))
            await self._take(Passing(arriving.total, arriving.taken), pace)
            await self._let_others_go()
            self._end_message()

    async def aclose(self) -> None:
        """Says CLOSE if that is possible within `CLOSE_PATIENCE`, and closes; a second time does nothing."""
        self._closed_here = True
        try:
            with suppress(ChannelError):
                record = memoryview(b"")
                if not self._sending.locked():
                    record = memoryview(self._writer.close())
                    record = record[self._wire.send_now(record) :]
                if record or self._sending.locked():
                    with trio.move_on_after(CLOSE_PATIENCE):
                        async with self._sending:
                            await self._wire.send(record or self._writer.close())
        finally:
            await self._wire.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _turn_to_send(self) -> None:
        """Takes the lock of the sending direction, without a wait where it is free."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()

    def _not_whole(self) -> None:
        """Breaks the sending direction: not all of a message went out."""
        self._writer.abandon("a message could not be sent as a whole")

    async def _let_others_go(self) -> None:
        """Let other tasks run, once for each message: unless it was waited for, when they have."""
        if not self._has_waited:
            self._read_at_once, self._has_waited = False, True
            await trio.lowlevel.cancel_shielded_checkpoint()

    def _end_message(self) -> None:
        self._message, self._has_waited = Quiet(), False

    async def _announcement(self, pace: Pace) -> Announced | Arriving:
        if self._closed_here:  # what came before that is here, perhaps, and is no longer for anybody
            raise ChannelClosedError("this side has closed the channel")
        if isinstance(self._message, Passing):
            await self._take(self._message, pace)
            self._end_message()
        if isinstance(self._message, Announced | Arriving):
            return self._message
        return await self._next_announcement(pace)

    async def _next_announcement(self, pace: Pace) -> Announced:
        while isinstance(event := self._next_event(), NeedData):
            if not self._reader.buffered and not self._take_what_is_there():
                await self._await_more()  # a peer may be silent for long, but not in the middle of a record
            if self._reader.midway:
                await self._read_whole_record(pace)
        match event:
            case Announced() as announced:
                self._message = announced
                return announced
            case _:
                raise ChannelClosedError("the peer has closed the channel; there is no further message")

    def _arriving(self, message: Announced | Arriving) -> Arriving:
        """The message that has been announced, of which more may have come."""
        return message if isinstance(message, Arriving) else Arriving(message.total, message.body)

    async def _take(
        self, message: Arriving | Passing, pace: Pace, room: Room = endless, until: int | None = None
    ) -> None:
        """Reads the rest of a message that has been announced, or more of it, until so many bytes of it have come."""
        before = 0 if isinstance(self._message, Announced) else message.taken
        self._message = message
        until = message.total if until is None else until
        if message.taken >= until:
            return
        stopwatch = self._stopwatch(pace, message.total)
        while message.taken < until:
            if isinstance(message, Arriving):
                await make_room(message, stopwatch, room)
            taken = message.taken
            self._take_records(message)
            if message.taken == taken:
                buffered = self._reader.buffered
                coming = message.total - message.taken - buffered
                await self._read_by(stopwatch, message.taken - before + buffered, coming)

    async def _read_whole_record(self, pace: Pace) -> None:
        stopwatch = self._stopwatch(pace)
        while self._reader.midway:
            await self._read_by(stopwatch, self._reader.buffered)

    def _stopwatch(self, pace: Pace, total: int = 0) -> Stopwatch:
        """Judges a message's progress; a peer that cannot vanish shares our process, and is as fast as that."""
        return Stopwatch(UNHURRIED if self._wire.steady else pace, total)

    async def _send_by(self, stopwatch: Stopwatch, sent: int, records: memoryview) -> bool:
        """Sends some records, which makes `sent` bytes in all; returns whether they left fast."""
        began = trio.current_time()
        with trio.move_on_at(stopwatch.deadline(sent)) as scope:
            await self._wire.send(records)
        if scope.cancelled_caught:
            raise stopwatch.too_slow()
        return trio.current_time() - began < _SWIFT

    async def _read_by(self, stopwatch: Stopwatch, moved: int, coming: int = 0) -> None:
        """Reads some bytes, after `moved` have been read.

        Args:
            stopwatch: the message's.
            moved: bytes of it, and of its records, that have come.
            coming: bytes of it, at least, that are still to come.
        """
        deadline = stopwatch.deadline(moved)
        if self._last_read >= _QUICK and coming > stopwatch.unseen:
            with trio.move_on_at(min(deadline, trio.current_time() + GATHERING)) as gathering:
                await self._await_more(min(coming, _READ_SIZE))
            if not gathering.cancelled_caught:
                return
            self._last_read = 0
        if self._take_what_is_there():
            return
        with trio.move_on_at(deadline) as scope:
            await self._await_more(min(self._reader.needed, stopwatch.unseen))
        if scope.cancelled_caught:
            raise stopwatch.too_slow()

    def _next_event(self) -> Event:
        """Returns what the bytes so far mean."""
        try:
            return self._reader.next_event()
        except ChannelError as error:
            self._break(error)
            raise

    def _take_records(self, message: Arriving | Passing) -> None:
        """Takes what has come of a message; what may have been put there otherwise is dropped with it."""
        try:
            message.take_records(self._reader)
        except ChannelError as error:
            self._break(error)
            raise

    def _break(self, error: ChannelError) -> None:
        """Drops the message under way, and breaks the sending direction where bytes are not the peer's."""
        self._message = Quiet()
        if not isinstance(error, RecordError | ChannelBrokenError):
            self._writer.abandon(str(error))

    async def _await_more(self, needed: int = 1) -> None:
        """Waits for some bytes from the wire; where it is lost, the sending direction breaks as well."""
        try:
            data = await self._wire.receive_some(_READ_SIZE - self._reader.buffered, needed)
            self._read_at_once, self._has_waited = False, True
            self._feed(data)
        except ChannelError as error:
            self._writer.abandon(str(error))
            raise

    def _take_what_is_there(self) -> bool:
        """Reads what the wire has, without a wait, but not twice in a row: others go on in between."""
        if self._read_at_once:
            return False
        try:
            data = self._wire.receive_now(_READ_SIZE - self._reader.buffered)
            if data is None:
                return False
            self._read_at_once = True
            self._feed(data)
        except ChannelError as error:
            self._writer.abandon(str(error))
            raise
        return True

    def _feed(self, data: bytes) -> None:
        self._last_read = len(data)
        if data:
            self._reader.feed(data)
        else:
            self._reader.feed_end()


class _SoleReceiver:
    """Lets one task at a time receive; without a generator, because every message goes through it twice."""

    def __init__(self) -> None:
        self._is_receiving = False

    def __enter__(self) -> None:
        if self._is_receiving:
            raise MisuseError("another task is receiving from this channel; only one may")
        self._is_receiving = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_receiving = False
