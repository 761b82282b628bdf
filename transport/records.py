"""Messages as encrypted records, sans I/O: `RecordWriter` makes the bytes of one direction, `RecordReader` reads them.

    record    = length, big-endian (2) | ciphertext of at most 65,535 bytes
    plaintext = type (1) | body
    message   = DATA records, whose bodies joined are: total length, big-endian (8) | that many bytes

The total comes first so that a receiver can refuse a message, or make room for it, before it takes any of it.

Rules kept here, by both sides:

- After every 1,024th record both sides replace their key; the nonce runs on.
- A message's records fill it exactly: each but the last is full, and the last has what is missing. Only an empty
  message has a record without bytes of it.
- CLOSE stands between messages and nothing follows it. A stream that ends without it has been cut.
- PING stands between messages and means nothing; it keeps a connection in use.
- The first violation, or the first ciphertext that does not decrypt, breaks the reader for good. Nothing of a record
  is given out before all of it has been authenticated: a message's record is decrypted to its place in the message,
  and what stands there counts as taken only if the tag was right.
"""

from __future__ import annotations

import enum
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
BODY_SIZE = RECORD_SIZE - TAG_SIZE - 1
"""Bytes of a full record's body."""
_OVERHEAD = _LENGTH_SIZE + 1 + TAG_SIZE


class RecordType(enum.IntEnum):
    """The first plaintext byte of a record."""

    DATA = 0
    CLOSE = 1
    PING = 2


@dataclass(frozen=True, slots=True)
class NeedData:
    """Nothing more can be said before more bytes are fed."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A message begins.

    Attributes:
        total: its length in bytes.
        body: its bytes in its first record; `RecordReader.take` takes the others.
    """

    total: int
    body: bytearray


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer has said CLOSE."""


Event = NeedData | Announced | Closed


@dataclass(frozen=True, slots=True)
class _Between:
    """No message is under way."""


@dataclass(slots=True)
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


class RecordWriter:
    """Turns messages into the bytes of one direction of a channel."""

    def __init__(self, cipher: CipherState) -> None:
        self._cipher = cipher
        self._state: _Between | _Ended | _Broken = _Between()

    def message(self, parts: Sequence[Buffer]) -> Outgoing:
        """Returns one message, whose bytes are made when they are taken.

        All of them must be sent, in order and with nothing between them. The parts are copied record by record, never
        as a whole; they must stay unchanged until the last bytes have been taken.

        Args:
            parts: C-contiguous buffers; the message is their concatenation.

        Raises:
            MisuseError: a part is not contiguous, or the message is longer than `LONGEST_MESSAGE`.
        """
        return Outgoing(self, [_byte_view(part) for part in parts])

    def ping(self) -> bytearray:
        """Returns a record that means nothing."""
        return self._bare(RecordType.PING)

    def close(self) -> bytearray:
        """Returns the last record of this direction."""
        record = self._bare(RecordType.CLOSE)
        self._state = _Ended()
        return record

    def abandon(self, reason: str) -> None:
        """Makes this direction unusable, because bytes that were made have not all been sent."""
        if isinstance(self._state, _Between):
            self._state = _Broken(reason)

    def require_open(self) -> None:
        """Refuses to make another record.

        Raises:
            ChannelClosedError: this direction is closed.
            ChannelBrokenError: it is broken.
        """
        match self._state:
            case _Broken(reason=reason):
                raise ChannelBrokenError(f"nothing more can be sent since an earlier failure: {reason}")
            case _Ended():
                raise ChannelClosedError("this side has closed the channel")

    def seal(self, plaintext: memoryview, record: memoryview) -> None:
        """Makes one record of its plaintext, in its place: 18 bytes more."""
        record[:_LENGTH_SIZE] = (len(plaintext) + TAG_SIZE).to_bytes(_LENGTH_SIZE, "big")
        self._cipher.encrypt_into(b"", plaintext, record[_LENGTH_SIZE:])
        _rekey_if_due(self._cipher)

    def _bare(self, kind: RecordType) -> bytearray:
        self.require_open()
        record = bytearray(_OVERHEAD)
        self.seal(memoryview(bytes([kind])), memoryview(record))
        return record


class Outgoing:
    """One message on its way out; iterating over it makes one record after the other.

    Attributes:
        total: its length in bytes.
    """

    def __init__(self, writer: RecordWriter, views: Sequence[memoryview]) -> None:
        self._writer = writer
        self.total = sum(map(len, views))
        if self.total > LONGEST_MESSAGE:
            raise MisuseError(f"a message has at most {LONGEST_MESSAGE:,} bytes, this one has {self.total:,}")
        self._views = iter((memoryview(self.total.to_bytes(_TOTAL_SIZE, "big")), *views))
        self._view = memoryview(b"")
        self._missing = _TOTAL_SIZE + self.total
        self._plaintext = memoryview(bytearray(1 + min(self._missing, BODY_SIZE)))
        self._plaintext[0] = RecordType.DATA

    def __iter__(self) -> Iterator[bytearray]:
        return iter(lambda: self.take(1), b"")

    def take(self, count: int) -> bytearray:
        """Makes the next records, and returns their bytes; none once the message is out.

        Args:
            count: how many, if there are as many.

        Raises:
            ChannelClosedError: this direction is closed.
            ChannelBrokenError: it is broken.
        """
        count = min(count, -(-self._missing // BODY_SIZE))
        records = bytearray(min(self._missing, count * BODY_SIZE) + count * _OVERHEAD)
        if count:
            self._writer.require_open()
        with memoryview(records) as room:
            for start in range(0, len(records), BODY_SIZE + _OVERHEAD):
                size = min(self._missing, BODY_SIZE)
                self._fill(size)
                self._writer.seal(self._plaintext[: 1 + size], room[start : start + size + _OVERHEAD])
                self._missing -= size
        return records

    def _fill(self, size: int) -> None:
        """Copies the message's next bytes into the plaintext, behind its type."""
        at, end = 1, 1 + size
        while at < end:
            if not self._view:
                self._view = next(self._views)
            piece = self._view[: end - at]
            self._plaintext[at : at + len(piece)] = piece
            self._view = self._view[len(piece) :]
            at += len(piece)


class RecordReader:
    """Turns the bytes of one direction of a channel into events, and puts messages into their place.

    Feed it bytes as they come, in portions of any size, and ask until it needs more: for an event between messages, and
    for the rest of a message that an event has announced.
    """

    def __init__(self, cipher: CipherState) -> None:
        self._cipher = cipher
        self._source: bytes | bytearray = b""
        self._at = 0
        self._state: _Between | _Inside | _Ended | _Broken = _Between()

    @property
    def buffered(self) -> int:
        """Bytes fed that belong to no record taken yet."""
        return len(self._source) - self._at

    @property
    def midway(self) -> bool:
        """Whether a record has begun and is incomplete."""
        return 0 < self.buffered < self._record_size()

    @property
    def needed(self) -> int:
        """Bytes that are missing of the record that has begun; one where none has."""
        return self._record_size() - self.buffered if self.midway else 1

    def _record_size(self) -> int:
        """Bytes of the first record in the buffer, or of its length while that is incomplete."""
        if self.buffered < _LENGTH_SIZE:
            return _LENGTH_SIZE
        return _LENGTH_SIZE + int.from_bytes(self._source[self._at : self._at + _LENGTH_SIZE], "big")

    def feed(self, data: bytes | bytearray) -> None:
        """Takes bytes from the stream; they are read where they are, unless a record began before them."""
        if not self.buffered:
            self._source = data
        elif isinstance(self._source, bytearray):
            del self._source[: self._at]
            self._source += data
        else:
            self._source = bytearray(b"".join((memoryview(self._source)[self._at :], data)))
        self._at = 0

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
        """Returns what the bytes so far mean, between messages.

        Raises:
            AuthenticationError: a record was not made with the expected key, or was altered, moved or left out.
            RecordError: the peer broke a rule of the record layer.
            ChannelBrokenError: one of these has been raised before.
            MisuseError: a message is under way.
        """
        while isinstance(self._state, _Between):
            size = self._whole_record()
            if not size:
                return NeedData()
            plaintext = bytearray(size - TAG_SIZE)
            self._open(size, plaintext)
            if plaintext[0] == RecordType.DATA:
                return self._begin(plaintext)
            self._read_bare(plaintext)
        if not isinstance(self._state, _Ended):
            self._refuse("a message is under way; `take` takes its bytes")
        if self.buffered:
            self._violation("there are bytes after CLOSE")
        return Closed()

    def take(self, content: bytearray, at: int) -> int:
        """Puts the next record's bytes of the message under way into their place.

        Args:
            content: what they are put into. If this fails, what stands there from `at` on is nobody's.
            at: where they begin, from 1 on; room for a full record, or for what is missing, has to be there.

        Returns:
            How many bytes they are; 0 while the record is incomplete.

        Raises:
            AuthenticationError: a record was not made with the expected key, or was altered, moved or left out.
            RecordError: the peer broke a rule of the record layer.
            ChannelBrokenError: one of these has been raised before.
            MisuseError: no message is under way.
        """
        inside = self._state
        if not isinstance(inside, _Inside):
            self._refuse("no message is under way")
        record = self._whole_record()
        if not record:
            return 0
        size = min(inside.missing, BODY_SIZE)
        if record != size + 1 + TAG_SIZE:
            self._refuse_size(record, size)
        before = content[at - 1]
        with memoryview(content)[at - 1 : at + size] as place:
            try:
                self._open(record, place)
            finally:
                kind, place[0] = place[0], before
        if kind != RecordType.DATA:
            self._violation(f"a record of type {kind} and {size} bytes in the middle of a message")
        inside.missing -= size
        if not inside.missing:
            self._state = _Between()
        return size

    def _begin(self, plaintext: bytearray) -> Announced:
        """Reads a message's first record, whose plaintext becomes the message's own bytes."""
        size = len(plaintext) - 1
        if size < _TOTAL_SIZE:
            self._violation(f"a message's first record has {size} bytes, too few for its length")
        total = int.from_bytes(plaintext[1 : 1 + _TOTAL_SIZE], "big")
        if total > LONGEST_MESSAGE:
            self._violation(f"a message of {total:,} bytes is announced, {LONGEST_MESSAGE:,} is the most")
        expected = min(_TOTAL_SIZE + total, BODY_SIZE)
        if size != expected:
            self._violation(f"a message of {total:,} bytes has {expected:,} in its first record, and not {size:,}")
        del plaintext[: 1 + _TOTAL_SIZE]
        if total > len(plaintext):
            self._state = _Inside(total - len(plaintext))
        return Announced(total, plaintext)

    def _read_bare(self, plaintext: bytearray) -> None:
        """Reads a record that is no message's."""
        kind = plaintext[0]
        if kind not in (RecordType.CLOSE, RecordType.PING):
            self._violation(f"{kind} is not a record type")
        if len(plaintext) > 1:
            self._violation(f"a {RecordType(kind).name} record carries {len(plaintext) - 1} bytes instead of none")
        if kind == RecordType.CLOSE:
            self._state = _Ended()

    def _refuse_size(self, record: int, size: int) -> NoReturn:
        """Says what is wrong with a record that is not of the message's next size, if it is the peer's at all."""
        plaintext = bytearray(record - TAG_SIZE)
        self._open(record, plaintext)
        self._violation(
            f"a record of type {plaintext[0]} and {len(plaintext) - 1:,} bytes in the middle of a message, "
            f"whose next record has {size:,}: each but the last is full"
        )

    def _whole_record(self) -> int:
        """Returns the size of the next record's ciphertext; 0 while it is incomplete."""
        if self.buffered < _LENGTH_SIZE:
            return 0
        size = self._record_size() - _LENGTH_SIZE
        if size <= TAG_SIZE:
            self._violation(f"a record of {size} bytes has no room for its type")
        return size if self.buffered >= _LENGTH_SIZE + size else 0

    def _open(self, size: int, plaintext: bytearray | memoryview) -> None:
        """Decrypts the next record, whose ciphertext has `size` bytes."""
        start = self._at + _LENGTH_SIZE
        try:
            with memoryview(self._source)[start : start + size] as ciphertext:
                self._cipher.decrypt_into(b"", ciphertext, plaintext)
        except AuthenticationError as error:
            self._break(error)
        self._at = start + size
        _rekey_if_due(self._cipher)

    def _refuse(self, misuse: str) -> NoReturn:
        if isinstance(self._state, _Broken):
            raise ChannelBrokenError(f"this channel is unusable since an earlier failure: {self._state.reason}")
        raise MisuseError(misuse)

    def _violation(self, what: str) -> NoReturn:
        self._break(RecordError(f"the peer broke the record protocol: {what}"))

    def _break(self, error: AuthenticationError | RecordError | ConnectionLostError) -> NoReturn:
        self._source, self._at = b"", 0
        self._state = _Broken(str(error))
        raise error


def _rekey_if_due(cipher: CipherState) -> None:
    """Replaces a direction's key if the record just made, or read, was the last one under it."""
    if cipher.nonce % REKEY_INTERVAL == 0:
        cipher.rekey()


def wire_size(length: int) -> int:
    """Returns the bytes on the wire of a message of `length` bytes."""
    records = -(-(_TOTAL_SIZE + length) // BODY_SIZE)
    return _TOTAL_SIZE + length + records * _OVERHEAD


def _byte_view(part: Buffer) -> memoryview:
    view = memoryview(part)
    if not view.nbytes:
        return memoryview(b"")
    try:
        return view.cast("B")
    except (TypeError, ValueError) as error:
        raise MisuseError("a part of a message must be a C-contiguous buffer of plain items") from error
