"""From a bare stream to a secure channel, on either side.

    client                                            server
    preamble (8)              ─────────────────────→            foreign bytes: closed at once, without a word
                              ←─────────────────────            preamble (8)
    Noise message 1 (48)      ─────────────────────→            not made for our key: closed without a word
                              ←─────────────────────            Noise message 2 (1,072), the server's payload
    Noise message 3 (1,088)   ─────────────────────→            the client's static key and payload
                              ←─────────────────────            one record: WELCOME; REFUSED or BUSY with the reason

Every message has one size, whatever it carries, so that an observer learns neither who the client is nor what it was
told, and a stranger cannot make either side wait for or store more than that. From outside all failures look alike: the
stream closes. The two ends learn the reason from the class of the error, and once there are keys the server says it.

The server proves that it holds its pinned key in message 2, before the client's identity leaves the client.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from fsl_async.errors import MisuseError
from fsl_async.foreign_text import printable
from fsl_async.randomness import Randomness
from transport.channel import Channel, Introduction
from transport.errors import (
    BusyError,
    ConnectionLostError,
    HandshakeError,
    LookedOnlyError,
    RefusedError,
    TurnedAwayError,
    WrongServerKeyError,
)
from transport.noise import KEY_SIZE, TAG_SIZE, HandshakeState, KeyPair, require_key
from transport.preamble import (
    MAGIC,
    PREAMBLE_SIZE,
    PROTOCOL_VERSION,
    Kind,
    Preamble,
    Role,
    prologue,
    require_magic,
    require_roles,
)
from transport.records import Announced, RecordReader, RecordWriter, wire_size
from transport.wire import Wire

_PADDED_SIZE = 1_024
_LENGTH_SIZE = 2
LONGEST_PAYLOAD = _PADDED_SIZE - _LENGTH_SIZE
LONGEST_REASON = LONGEST_PAYLOAD - 1

_FIRST_SIZE = KEY_SIZE + TAG_SIZE
_SECOND_SIZE = KEY_SIZE + _PADDED_SIZE + TAG_SIZE
_THIRD_SIZE = KEY_SIZE + TAG_SIZE + _PADDED_SIZE + TAG_SIZE


class _Verdict(bytes, enum.Enum):
    """The first byte of the server's answer."""

    WELCOME = b"\x01"
    REFUSED = b"\x02"
    BUSY = b"\x03"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to a client that is not let in.

    Attributes:
        reason: what the client is told, at most `LONGEST_REASON` bytes of UTF-8.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class NoPlace(Refusal):
    """The answer to a client that would be let in if there were a place.

    The client gets a `BusyError` instead of a `RefusedError`, and may ask again later.
    """


Admit = Callable[[bytes, bytes], Awaitable[bytes | Refusal]]
"""Decides about a client, given its static key and its payload.

Returns a `Refusal`, or the text of a welcome, at most `LONGEST_REASON` bytes.
"""

CheckPayload = Callable[[bytes], None]
"""Called with the server's payload before the client says who it is; raises an `FslError` to break off."""


@dataclass(frozen=True, slots=True)
class HandshakeSettings:
    """What one endpoint brings to every handshake.

        settings = HandshakeSettings(keys.private, Role.CLIENT, Kind.LIVE, os.urandom)

    Attributes:
        private_key: its static X25519 private key.
        role: what it is in the deployment.
        kind: where its randomness comes from.
        randomness: draws the ephemeral keys.
        payload: what it tells the other side, at most `LONGEST_PAYLOAD` bytes; encrypted.
        deadline: seconds for connecting and shaking hands.
    """

    private_key: bytes = field(repr=False)
    role: Role
    kind: Kind
    randomness: Randomness = field(repr=False)
    payload: bytes = field(default=b"", repr=False)
    deadline: float = 10.0

    def __post_init__(self) -> None:
        require_key("an X25519 private key", self.private_key)
        if len(self.payload) > LONGEST_PAYLOAD:
            raise MisuseError(
                f"a handshake payload has at most {LONGEST_PAYLOAD} bytes, this one has {len(self.payload)}"
            )

    @property
    def preamble(self) -> Preamble:
        """The opening that announces this endpoint."""
        return Preamble(PROTOCOL_VERSION, self.role, self.kind)


def accept_any_payload(payload: bytes) -> None:
    """Accepts every payload."""


async def initiate(
    wire: Wire, server_key: bytes, settings: HandshakeSettings, check: CheckPayload = accept_any_payload
) -> Channel:
    """Performs the client's side of the handshake.

    Args:
        wire: a fresh connection; the caller closes it if this fails.
        server_key: the pinned static key of the server.
        settings: what this endpoint brings.
        check: looks at the server's payload before the client says who it is.

    Raises:
        HandshakeError: no channel came about; the class says why.
        AuthenticationError: bytes were altered on the way.
        ConnectionLostError: the server left in the middle.
    """
    require_key("a server's pinned key", server_key)
    answered = await _exchange_preambles(wire, settings.preamble)
    require_roles(settings.role, answered.role)
    agreed = prologue(settings.preamble.encode(), answered.encode())
    noise = HandshakeState(KeyPair.from_private(settings.private_key), server_key, agreed, settings.randomness)
    peer_payload = _unpad(noise.read_message(await _challenge(wire, noise)))
    check(peer_payload)
    await wire.send_short(noise.write_message(_pad(settings.payload, _PADDED_SIZE)))
    sending, receiving = noise.split()
    reader = RecordReader(receiving)
    welcome = _judged(await _read_answer(wire, reader))
    introduction = Introduction(server_key, Role(answered.role), peer_payload, noise.handshake_hash, welcome)
    return Channel(wire, RecordWriter(sending), reader, introduction)


async def respond(wire: Wire, settings: HandshakeSettings, admit: Admit) -> Channel:
    """Performs the server's side of the handshake.

    Args:
        wire: a fresh connection; the caller closes it if this fails.
        settings: what this endpoint brings.
        admit: decides about the client once its key is authenticated.

    Raises:
        RefusedError: `admit` refused, and the client knows why.
        BusyError: there was no place for the client, and it knows that it may ask again.
        HandshakeError: no channel came about for another reason; the class says why.
        AuthenticationError: the client wants another server, or bytes were altered on the way.
        LookedOnlyError: the client has seen who we are, and left before it said who it is.
        ConnectionLostError: the client left in the middle.
    """
    asked = await _answer_preamble(wire, settings.preamble)
    require_roles(asked.role, settings.role)
    agreed = prologue(asked.encode(), settings.preamble.encode())
    noise = HandshakeState(KeyPair.from_private(settings.private_key), None, agreed, settings.randomness)
    noise.read_message(await wire.receive_exactly(_FIRST_SIZE))
    await wire.send_short(noise.write_message(_pad(settings.payload, _PADDED_SIZE)))
    padded = noise.read_message(await _introduction(wire))
    sending, receiving = noise.split()
    writer = RecordWriter(sending)
    try:
        peer_payload = _unpad(padded)
    except HandshakeError as error:
        await _send_answer(wire, writer, Refusal(str(error)))
        raise
    decision = await admit(noise.remote_static, peer_payload)
    await _send_answer(wire, writer, decision)
    welcome = _admitted(decision)
    introduction = Introduction(noise.remote_static, Role(asked.role), peer_payload, noise.handshake_hash, welcome)
    return Channel(wire, writer, RecordReader(receiving), introduction)


async def _exchange_preambles(wire: Wire, ours: Preamble) -> Preamble:
    """Sends our preamble and returns the server's, if the two fit."""
    try:
        await wire.send_short(ours.encode())
        opening = await wire.receive_exactly(len(MAGIC))
    except ConnectionLostError as error:
        raise TurnedAwayError(
            "the server closed the connection before it said anything: it is overloaded, it limits how often this "
            "address may connect, its `transport` is another one, or it is not an fsl-async server; wait a moment and "
            "try again"
        ) from error
    require_magic(opening)
    theirs = Preamble.decode(opening + await wire.receive_exactly(PREAMBLE_SIZE - len(MAGIC)))
    ours.require_compatible(theirs)
    return theirs


async def _answer_preamble(wire: Wire, ours: Preamble) -> Preamble:
    """Returns the client's preamble, if the two fit; ours is sent even if not, unless the client is foreign."""
    opening = await wire.receive_exactly(len(MAGIC))
    require_magic(opening)
    theirs = Preamble.decode(opening + await wire.receive_exactly(PREAMBLE_SIZE - len(MAGIC)))
    await wire.send_short(ours.encode())
    ours.require_compatible(theirs)
    return theirs


async def _challenge(wire: Wire, noise: HandshakeState) -> bytes:
    """Sends message 1, which only the holder of the pinned key can read, and returns message 2."""
    await wire.send_short(noise.write_message(b""))
    try:
        return await wire.receive_exactly(_SECOND_SIZE)
    except ConnectionLostError as error:
        raise WrongServerKeyError(
            f"the server could not answer a challenge to the pinned key {noise.remote_static.hex()}: it holds another "
            "key, or bytes were altered on the way. Check the address; where the server has new keys, take the file "
            "that has them from its operator"
        ) from error


async def _introduction(wire: Wire) -> bytes:
    """Returns message 3, in which the client says who it is."""
    before = wire.bytes_received
    try:
        return await wire.receive_exactly(_THIRD_SIZE)
    except ConnectionLostError as error:
        if wire.bytes_received > before:
            raise
        raise LookedOnlyError("the client has seen our key and our task, and left before it said who it is") from error


async def _send_answer(wire: Wire, writer: RecordWriter, decision: bytes | Refusal) -> None:
    match decision:
        case NoPlace(reason=reason):
            answer = _Verdict.BUSY + _pad(reason.encode(), _PADDED_SIZE - 1)
        case Refusal(reason=reason):
            answer = _Verdict.REFUSED + _pad(reason.encode(), _PADDED_SIZE - 1)
        case _:
            answer = _Verdict.WELCOME + _pad(decision, _PADDED_SIZE - 1)
    await wire.send_short(writer.message([answer]).take(1))


def _admitted(decision: bytes | Refusal) -> bytes:
    """Returns the welcome, or raises if the client is not let in."""
    match decision:
        case NoPlace(reason=reason):
            raise BusyError(f"we had no place for the client: {reason!r}", reason)
        case Refusal(reason=reason):
            raise RefusedError(f"we refused the client: {reason!r}", reason)
        case welcome:
            return welcome


async def _read_answer(wire: Wire, reader: RecordReader) -> bytes:
    """Returns the plaintext of the first record, which is a message of its own."""
    reader.feed(await wire.receive_exactly(wire_size(_PADDED_SIZE)))
    match reader.next_event():
        case Announced(total=total, body=body) if total == _PADDED_SIZE:
            return bytes(body)
        case _:
            raise HandshakeError("the server's first record is not an answer; it does not follow the protocol")


def _judged(answer: bytes) -> bytes:
    """Returns the welcome, or raises what the server refused with."""
    text = _unpad(answer[1:])
    match answer[:1]:
        case _Verdict.WELCOME:
            return text
        case _Verdict.REFUSED:
            reason = printable(text.decode(errors="replace"))
            raise RefusedError(f"the server refused us: {reason!r}", reason)
        case _Verdict.BUSY:
            reason = printable(text.decode(errors="replace"))
            raise BusyError(f"the server has no place for us now: {reason!r}; try again later", reason)
        case verdict:
            raise HandshakeError(f"the server answers {verdict!r}, neither WELCOME nor REFUSED nor BUSY")


def _pad(content: bytes, size: int) -> bytes:
    """Returns length, content and zeros, `size` bytes in all."""
    if len(content) > size - _LENGTH_SIZE:
        raise MisuseError(f"at most {size - _LENGTH_SIZE} bytes fit here, these are {len(content)}")
    return (len(content).to_bytes(_LENGTH_SIZE, "big") + content).ljust(size, b"\0")


def _unpad(padded: bytes) -> bytes:
    length = int.from_bytes(padded[:_LENGTH_SIZE], "big")
    end = _LENGTH_SIZE + length
    if end > len(padded) or any(padded[end:]):
        raise HandshakeError("the peer's handshake payload is badly padded; it does not follow the protocol")
    return padded[_LENGTH_SIZE:end]
