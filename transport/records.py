"""Messages as encrypted records, sans I/O: `RecordWriter` makes the bytes of one direction, `RecordReader` reads them.

    record    = length, big-endian (2) | ciphertext of at most 65,535 bytes
    plaintext = type (1) | body
    message   = MORE* END, whose bodies joined are: total length, big-endian (8) | that many bytes

The total comes first so that a receiver can refuse a message, or make room for it, before it takes any of it.

Rules kept here, by both sides:

- Of every 1,024 records the last is a REKEY, and a REKEY is nowhere else; both sides then replace their key.
- CLOSE stands between messages and nothing follows it. A stream that ends without it has been cut.
- PING stands between messages and means nothing; it keeps a connection in use.
- A message's records fill it exactly: each but the last is full, none exceeds the announced total, END comes with its
  last byte. Only an empty message has an END without bytes.
- The first violation, or the first ciphertext that does not decrypt, breaks the reader for good. Nothing of a record
  is given out before all of it has been authenticated.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from fsl_async.errors import MisuseError
from transport.errors import (
    AuthenticationError,
    ChannelBrokenError,
    ChannelClosedError,
    ConnectionLostError,
    RecordError,
)
from transport.noise import TAG_SIZE, CipherState

if TYPE_CHECKING:
    from typing_extensions import Buffer


RECORD_SIZE = 65_535
REKEY_INTERVAL = 1_024
LONGEST_MESSAGE = 2**40

_LENGTH_SIZE = 2
_TOTAL_SIZE = 8
_BODY_SIZE = RECORD_SIZE - TAG_SIZE - 1


class RecordType(enum.IntEnum):
    """The first plaintext byte of a record."""

    MORE = 0
    END = 1
    CLOSE = 2
    REKEY = 3
    PING = 4


@dataclass(frozen=True, slots=True)
class NeedData:
    """Nothing more can be said before more bytes are fed."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A message of `total` bytes begins."""

    total: int


@dataclass(frozen=True, slots=True)
class Body:
    """The next bytes of the message; there is at least one."""

    data: memoryview


@dataclass(frozen=True, slots=True)
class Finished:
    """The message is whole."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer has said CLOSE."""


Event = NeedData | Announced | Body | Finished | Closed


@dataclass(frozen=True, slots=True)
class _Between:
    """No message is under way."""


@dataclass(frozen=True, slots=True)
class _Inside:
    """A message is under way."""

    missing: int


@dataclass(frozen=True, slots=True)
class _Ended:
    """CLOSE has come."""


@dataclass(frozen=True, slots=True)
class _Broken:
    """A rule has been broken; `reason` says which."""

    reason: str


class _Cadence:
    """Counts one direction's records and knows when its key is due."""

    __slots__ = ("_cipher", "_records")

    def __init__(self, cipher: CipherState) -> None:
        self._cipher = cipher
        self._records = 0

    @property
    def rekey_due(self) -> bool:
        """Whether the next record must be a REKEY."""
        return self._records == REKEY_INTERVAL - 1

    def encrypt(self, plaintext: bytes) -> bytes:
        ciphertext = self._cipher.encrypt(b"", plaintext)
        self._records += 1
        return ciphertext

    def decrypt(self, ciphertext: bytes) -> bytes:
        plaintext = self._cipher.decrypt(b"", ciphertext)
        self._records += 1
        return plaintext

    def rekey(self) -> None:
        self._cipher.rekey()
        self._records = 0


class RecordWriter:
    """Turns messages into the bytes of one direction of a channel."""

    def __init__(self, cipher: CipherState) -> None:
        self._cadence = _Cadence(cipher)
        self._state: _Between | _Ended | _Broken = _Between()

    def message(self, parts: Sequence[Buffer]) -> Iterator[bytes]:
        """Gives the bytes of one message, record by record.

        All of them must be sent, in order and with nothing between them. The parts are copied record by record, never
        as a whole; they must stay unchanged until the last bytes have been taken.

        Args:
            parts: C-contiguous buffers; the message is their concatenation.

        Raises:
            ChannelClosedError: this direction is closed; raised where the first bytes are taken.
            ChannelBrokenError: it is broken; likewise.
            MisuseError: a part is not contiguous, or the message is longer than `LONGEST_MESSAGE`.
        """
        views = [_byte_view(part) for part in parts]
        total = sum(view.nbytes for view in views)
        if total > LONGEST_MESSAGE:
            raise MisuseError(f"a message has at most {LONGEST_MESSAGE:,} bytes, this one has {total:,}")
        return self._message(total, views)

    def ping(self) -> bytes:
        """Returns a record that means nothing."""
        return self._records(RecordType.PING)

    def close(self) -> bytes:
        """Returns the last record of this direction."""
        record = self._records(RecordType.CLOSE)
        self._state = _Ended()
        return record

    def abandon(self, reason: str) -> None:
        """Makes this direction unusable, because bytes that were made have not all been sent."""
        if isinstance(self._state, _Between):
            self._state = _Broken(reason)

    def _message(self, total: int, views: Sequence[memoryview]) -> Iterator[bytes]:
        missing = _TOTAL_SIZE + total
        for pieces in _bodies(total, views):
            missing -= sum(len(piece) for piece in pieces)
            yield self._records(RecordType.MORE if missing else RecordType.END, pieces)

    def _records(self, kind: RecordType, pieces: Sequence[bytes | memoryview] = ()) -> bytes:
        """Returns one record, behind a REKEY where that is due."""
        match self._state:
            case _Broken(reason=reason):
                raise ChannelBrokenError(f"nothing more can be sent since an earlier failure: {reason}")
            case _Ended():
                raise ChannelClosedError("this side has closed the channel")
            case _Between():
                pass
        if not self._cadence.rekey_due:
            return self._record(kind, pieces)
        rekey = self._record(RecordType.REKEY, ())
        self._cadence.rekey()
        return rekey + self._record(kind, pieces)

    def _record(self, kind: RecordType, pieces: Sequence[bytes | memoryview]) -> bytes:
        ciphertext = self._cadence.encrypt(b"".join((bytes([kind]), *pieces)))
        return len(ciphertext).to_bytes(_LENGTH_SIZE, "big") + ciphertext


class RecordReader:
    """Turns the bytes of one direction of a channel into events.

    Feed it bytes as they come, in portions of any size, and ask for events until it needs more.
    """

    def __init__(self, cipher: CipherState) -> None:
        self._cadence = _Cadence(cipher)
        self._buffer = bytearray()
        self._events: deque[Event] = deque()
        self._state: _Between | _Inside | _Ended | _Broken = _Between()

    @property
    def buffered(self) -> int:
        """Bytes fed that belong to no event yet."""
        return len(self._buffer)

    @property
    def midway(self) -> bool:
        """Whether a record has begun and is incomplete."""
        return 0 < len(self._buffer) < self._record_size()

    @property
    def needed(self) -> int:
        """Bytes that are missing of the record that has begun; one where none has."""
        return self._record_size() - len(self._buffer) if self.midway else 1

    def _record_size(self) -> int:
        """Bytes of the first record in the buffer, or of its length while that is incomplete."""
        if len(self._buffer) < _LENGTH_SIZE:
            return _LENGTH_SIZE
        return _LENGTH_SIZE + int.from_bytes(self._buffer[:_LENGTH_SIZE], "big")

    def feed(self, data: Buffer) -> None:
        """Takes bytes from the stream."""
        self._buffer += data

    def feed_end(self) -> None:
        """Takes note that the stream has ended.

        Raises:
            ConnectionLostError: it ended without a CLOSE.
        """
        if not isinstance(self._state, _Ended):
            self._break(ConnectionLostError("the stream ended without a CLOSE: the peer vanished or was cut off"))

    def abandon(self, error: ConnectionLostError) -> NoReturn:
        """Reads nothing from the stream any more, and raises the reason."""
        self._break(error)

    def next_event(self) -> Event:
        """Returns what the bytes so far mean, event by event.

        Raises:
            AuthenticationError: a record was not made with the expected key, or was altered, moved or left out.
            RecordError: the peer broke a rule of the record layer.
            ChannelBrokenError: one of these has been raised before.
        """
        while not self._events:
            match self._state:
                case _Broken(reason=reason):
                    raise ChannelBrokenError(f"this channel is unusable since an earlier failure: {reason}")
                case _Ended():
                    if self._buffer:
                        self._violation("there are bytes after CLOSE")
                    return Closed()
                case _:
                    ciphertext = self._take_ciphertext()
                    if not ciphertext:
                        return NeedData()
                    self._read(ciphertext)
        return self._events.popleft()

    def _take_ciphertext(self) -> bytes:
        """Returns the next whole record's ciphertext, or nothing while it is incomplete."""
        if len(self._buffer) < _LENGTH_SIZE:
            return b""
        size = int.from_bytes(self._buffer[:_LENGTH_SIZE], "big")
        if size <= TAG_SIZE:
            self._violation(f"a record of {size} bytes has no room for its type")
        if len(self._buffer) < _LENGTH_SIZE + size:
            return b""
        with memoryview(self._buffer) as view:
            ciphertext = bytes(view[_LENGTH_SIZE : _LENGTH_SIZE + size])
        del self._buffer[: _LENGTH_SIZE + size]
        return ciphertext

    def _read(self, ciphertext: bytes) -> None:
        due = self._cadence.rekey_due
        try:
            plaintext = self._cadence.decrypt(ciphertext)
        except AuthenticationError as error:
            self._break(error)
        kind, body = plaintext[0], memoryview(plaintext)[1:]
        if due != (kind == RecordType.REKEY):
            self._violation(f"of every {REKEY_INTERVAL} records exactly the last must be a REKEY")
        match kind:
            case RecordType.MORE | RecordType.END:
                self._read_message(body, last=kind == RecordType.END)
            case RecordType.REKEY:
                self._require_bare(kind, body)
                self._cadence.rekey()
            case RecordType.PING:
                self._require_bare(kind, body)
                self._require_between(kind)
            case RecordType.CLOSE:
                self._require_bare(kind, body)
                self._require_between(kind)
                self._state = _Ended()
            case _:
                self._violation(f"{kind} is not a record type")

    def _read_message(self, body: memoryview, last: bool) -> None:
        if not last and len(body) < _BODY_SIZE:
            self._violation(
                f"a MORE record has {len(body):,} bytes and not {_BODY_SIZE:,}: each before the last is full"
            )
        match self._state:
            case _Inside(missing=missing):
                if not body:
                    self._violation("a record without bytes inside a message")
            case _:
                if len(body) < _TOTAL_SIZE:
                    self._violation(f"a message's first record has {len(body)} bytes, too few for its length")
                missing = int.from_bytes(body[:_TOTAL_SIZE], "big")
                body = body[_TOTAL_SIZE:]
                if missing > LONGEST_MESSAGE:
                    self._violation(f"a message of {missing:,} bytes is announced, {LONGEST_MESSAGE:,} is the most")
                if missing and not body:
                    self._violation("a message's first record has none of its bytes")
                self._events.append(Announced(missing))
        self._advance(missing, body, last)

    def _advance(self, missing: int, body: memoryview, last: bool) -> None:
        if len(body) > missing:
            self._violation(f"a record has {len(body)} bytes where only {missing} of its message are missing")
        if last != (len(body) == missing):
            self._violation(f"{missing - len(body)} bytes are missing and the record says {'END' if last else 'MORE'}")
        if body:
            self._events.append(Body(body))
        if last:
            self._events.append(Finished())
        self._state = _Between() if last else _Inside(missing - len(body))

    def _require_bare(self, kind: int, body: memoryview) -> None:
        if body:
            self._violation(f"a {RecordType(kind).name} record carries {len(body)} bytes instead of none")

    def _require_between(self, kind: int) -> None:
        if not isinstance(self._state, _Between):
            self._violation(f"a {RecordType(kind).name} record in the middle of a message")

    def _violation(self, what: str) -> NoReturn:
        self._break(RecordError(f"the peer broke the record protocol: {what}"))

    def _break(self, error: AuthenticationError | RecordError | ConnectionLostError) -> NoReturn:
        self._events.clear()
        self._buffer.clear()
        self._state = _Broken(str(error))
        raise error


def wire_size(length: int) -> int:
    """Returns the bytes on the wire of a message of `length` bytes, without the REKEY records in its way."""
    records = max(1, -(-(_TOTAL_SIZE + length) // _BODY_SIZE))
    return _TOTAL_SIZE + length + records * (_LENGTH_SIZE + 1 + TAG_SIZE)


def _byte_view(part: Buffer) -> memoryview:
    view = memoryview(part)
    if not view.nbytes:
        return memoryview(b"")
    try:
        return view.cast("B")
    except (TypeError, ValueError) as error:
        raise MisuseError("a part of a message must be a C-contiguous buffer of plain items") from error


def _bodies(total: int, views: Sequence[memoryview]) -> Iterator[list[bytes | memoryview]]:
    """Cuts a message into the bodies of its records; each but the last is full."""
    pieces: list[bytes | memoryview] = [total.to_bytes(_TOTAL_SIZE, "big")]
    room = _BODY_SIZE - _TOTAL_SIZE
    for view in views:
        start = 0
        while start < len(view):
            if not room:
                yield pieces
                pieces, room = [], _BODY_SIZE
            piece = view[start : start + room]
            pieces.append(piece)
            start += len(piece)
            room -= len(piece)
    yield pieces
