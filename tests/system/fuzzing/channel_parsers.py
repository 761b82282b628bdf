"""The channel: bytes of a stranger, and of a peer that has every key and keeps no rule.

A stranger's bytes end at the first record that does not decrypt. What lies behind is reached by a hostile peer that
does its part of the handshake as it must, and then encrypts whatever the input says.
"""

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import trio

from fsl_async.errors import MisuseError
from parties.compute import InlineLane
from parties.identity.handshake import Credentials
from tests.support.machine_scenes import key
from tests.support.record_peer import RecordPeer
from transport import AuthenticationError, ChannelClosedError, Kind, Role
from transport.channel import Channel, Introduction
from transport.errors import ChannelError, MessageTooLongError
from transport.handshake import HandshakeSettings, Refusal, initiate, respond
from transport.noise import CipherState, HandshakeState, KeyPair
from transport.preamble import PREAMBLE_SIZE, Preamble, prologue
from transport.records import BODY_SIZE, Announced, RecordReader, RecordType, RecordWriter
from transport.socket_transport import check_address
from transport.tcp import split_address
from transport.unix import SCHEME, socket_path
from transport.wire import Wire

from .parser import SLOW, Parser
from .samples import ALICE, SERVERS, TASK, Script, repeating

ResultT = TypeVar("ResultT")

CLIENT, SERVER = (
    HandshakeSettings(
        private_key=identity.channel_secret, role=role, kind=Kind.LIVE, randomness=repeating(number), payload=payload
    )
    for identity, role, number, payload in (
        (ALICE, Role.CLIENT, 20, Credentials.of(ALICE, TASK.digest()).encode()),
        (SERVERS[0], Role.SERVER_0, 21, b"hello"),
    )
)
SERVER_KEY = SERVERS[0].public.channel
PROLOGUE = prologue(CLIENT.preamble.encode(), SERVER.preamble.encode())
BLOCK = 1_024
"""Bytes of a padded handshake payload."""


def at_once(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """The result of a coroutine that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("it waits for something that is not there")


class LaneAtOnce(InlineLane):
    """Computes at once, outside of any event loop."""

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        return work()


class WireAtOnce(Wire):
    """Sends outside of any event loop, where nobody can be cancelled."""

    async def send_short(self, data: bytes | bytearray | memoryview) -> None:
        await self.send(data)


async def _admit(static: bytes, payload: bytes) -> bytes | Refusal:
    """Let in whoever can say who it is."""
    try:
        credentials = Credentials.decode(payload)
    except MisuseError as error:
        return Refusal(str(error)[:200])
    return credentials.name.encode() if credentials.is_signed_for(static) else Refusal("not signed")


# ---- strangers


def _initiator() -> HandshakeState:
    return HandshakeState(KeyPair.from_private(CLIENT.private_key), SERVER_KEY, PROLOGUE, repeating(20))


def _responder() -> HandshakeState:
    return HandshakeState(KeyPair.from_private(SERVER.private_key), None, PROLOGUE, repeating(21))


def _padded(content: bytes) -> bytes:
    return (len(content).to_bytes(2, "big") + content).ljust(BLOCK, b"\0")


def _honest_messages() -> tuple[bytes, bytes, bytes]:
    initiator, responder = _initiator(), _responder()
    first = initiator.write_message(b"")
    responder.read_message(first)
    second = responder.write_message(_padded(SERVER.payload))
    initiator.read_message(second)
    return first, second, initiator.write_message(_padded(CLIENT.payload))


FIRST, SECOND, THIRD = _honest_messages()


def _honest_answer() -> bytes:
    """What a server says in an honest handshake, from its preamble to its answer."""
    script = Script(CLIENT.preamble.encode() + FIRST + THIRD)
    at_once(respond(WireAtOnce(script), SERVER, _admit))
    return bytes(script.heard)


def _read_first(data: bytes) -> None:
    _responder().read_message(data)


def _read_second(data: bytes) -> None:
    initiator = _initiator()
    initiator.write_message(b"")
    initiator.read_message(data)


def _read_third(data: bytes) -> None:
    responder = _responder()
    responder.read_message(FIRST)
    responder.write_message(_padded(SERVER.payload))
    responder.read_message(data)


def _respond(data: bytes) -> None:
    at_once(respond(WireAtOnce(Script(data)), SERVER, _admit))


def _initiate(data: bytes) -> None:
    at_once(initiate(WireAtOnce(Script(data)), SERVER_KEY, CLIENT))


def _read_preamble(data: bytes) -> None:
    """As both sides read it: eight bytes, or the stream has ended before."""
    if len(data) >= PREAMBLE_SIZE:
        theirs = Preamble.decode(data[:PREAMBLE_SIZE])
        SERVER.preamble.require_compatible(theirs)
        assert theirs.encode() == data[:PREAMBLE_SIZE]


def _read_strange_records(data: bytes) -> None:
    reader = RecordReader(CipherState(key(30)))
    reader.feed(data)
    _drain(reader, 0)


def _honest_records() -> list[bytes]:
    writer = RecordWriter(CipherState(key(30)))
    return [b"".join(writer.message([b"words"])) + writer.ping() + b"".join(writer.message([])) + writer.close()]


def _drain(reader: RecordReader, missing: int) -> int:
    """Takes all that has come, in constant memory; returns what is missing of the message that is under way."""
    place = bytearray(1 + BODY_SIZE)
    while True:
        if missing:
            size = reader.take(place, 1)
            if not size:
                return missing
            missing -= size
        elif isinstance(event := reader.next_event(), Announced):
            missing = event.total - len(event.body)
        else:
            return 0
        assert missing >= 0


# ---- peers with keys


def _respond_to_hostile(data: bytes) -> None:
    """A client whose handshake is sound, and whose padded payload is the input."""
    initiator = _initiator()
    first = initiator.write_message(b"")
    initiator.read_message(SECOND)
    third = initiator.write_message(data[:BLOCK].ljust(BLOCK, b"\0"))
    _respond(CLIENT.preamble.encode() + first + third)


class _HostileServer(Script):
    """A server whose handshake is sound; its padded payload and its first record are the input."""

    def __init__(self, data: bytes) -> None:
        super().__init__(SERVER.preamble.encode())
        size = int.from_bytes(data[:2], "big")
        self._payload = data[2 : 2 + size][:BLOCK].ljust(BLOCK, b"\0")
        self._answer = data[2 + size :]
        self._noise = _responder()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        if len(data) == len(FIRST):
            self._noise.read_message(bytes(data))
            self.data += self._noise.write_message(self._payload)
        if len(data) == len(THIRD):
            self._noise.read_message(bytes(data))
            sending, _ = self._noise.split()
            ciphertext = sending.encrypt(b"", self._answer[:65_000])
            self.data += len(ciphertext).to_bytes(2, "big") + ciphertext


def _initiate_with_hostile(data: bytes) -> None:
    at_once(initiate(WireAtOnce(_HostileServer(data)), SERVER_KEY, CLIENT))


def _hostile_answers() -> list[bytes]:
    payload = _padded(b"hello")
    welcome = [verdict + _padded(b"alice")[: BLOCK - 1] for verdict in (b"\x01",)]
    records = [bytes([RecordType.DATA]) + BLOCK.to_bytes(8, "big") + data for data in welcome]
    return [len(payload).to_bytes(2, "big") + payload + record for record in records]


class _HostileWriter:
    """Encrypts whatever records the input asks for, and keeps to nothing but the keys.

    An instruction is a record's type (1), the length of its body (1), and the body; DATA of 255 bytes is filled up to
    a full one. At the beginning, the type 255 stands for many PINGs, so that a key's last record comes near.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._record = RecordPeer(None, CipherState(key(30)), None).record

    def records(self) -> Iterator[bytes]:
        place = 0
        while place + 1 < len(self._data):
            kind, size = self._data[place], self._data[place + 1]
            if kind == 255 and place == 0:
                yield b"".join(self._record(RecordType.PING, b"") for _ in range(4 * size))
                place += 2
                continue
            body = self._data[place + 2 : place + 2 + size]
            full = (kind, len(body)) == (RecordType.DATA, 255)
            yield self._record(kind, body.ljust(BODY_SIZE, b"\0") if full else body)
            place += 2 + size


def _instruction(kind: int, body: bytes = b"") -> bytes:
    return bytes([kind, len(body)]) + body


def _message(full: int, size: int) -> bytes:
    """The instructions of an honest message: so many full records, and a last one with this much of it."""
    total = ((BODY_SIZE * full - 8 if full else 0) + size).to_bytes(8, "big")
    bodies = [total + bytes(247), *[bytes(255)] * (full - 1), bytes(size)] if full else [total + bytes(size)]
    return b"".join(_instruction(RecordType.DATA, body) for body in bodies)


def _hostile_records() -> list[bytes]:
    close = _instruction(RecordType.CLOSE)
    up_to_rekey = bytes([255, 255]) + 4 * _instruction(RecordType.PING)
    return [_message(0, 5) + close, _message(2, 90) + _message(0, 0) + close, up_to_rekey + _message(0, 9) + close]


def _read_hostile_records(data: bytes) -> None:
    """Records must make whole messages of exactly the announced length, however the bytes are cut."""
    reader = RecordReader(CipherState(key(30)))
    missing = 0
    for records in _HostileWriter(data).records():
        for portion in (records[:1], records[1:7], records[7:]):
            reader.feed(portion)
            missing = _drain(reader, missing)
            assert reader.buffered <= len(records)


def _receive_from_hostile(data: bytes) -> None:
    """A channel that is read in every way there is; the first byte says in which order."""
    order, records = data[:1], b"".join(_HostileWriter(data[1:]).records())

    async def receive() -> None:
        introduction = Introduction(SERVER_KEY, Role.SERVER_0, b"", b"", b"")
        reader, writer = RecordReader(CipherState(key(30))), RecordWriter(CipherState(key(31)))
        channel = Channel(WireAtOnce(Script(records)), writer, reader, introduction)
        ways = int.from_bytes(order, "big")
        for turn in range(1_000):
            match ways >> turn % 8 & 3:
                case 0:
                    await channel.discard()
                case _:
                    await _receive_at_most(channel, 300)
        raise AssertionError("a script of a few records does not hold a thousand messages")

    try:
        trio.run(receive)
    except ChannelClosedError:
        return


async def _receive_at_most(channel: Channel, limit: int) -> None:
    announced = await channel.announced()
    try:
        received = await channel.receive(limit)
    except MessageTooLongError:
        assert announced > limit
        await channel.discard()
        return
    assert len(received) == announced <= limit


# ---- addresses


def _read_address(data: bytes) -> None:
    address = data.decode("utf-8", "surrogateescape")
    check_address(address)
    if address.startswith(SCHEME):
        assert socket_path(address).is_absolute()
        return
    host, port = split_address(address)
    assert host
    assert 0 <= port < 2**16


PARSERS = (
    Parser("preamble", _read_preamble, lambda: [CLIENT.preamble.encode()], (ChannelError,), longest=16),
    Parser("noise-message-1", _read_first, lambda: [FIRST], (AuthenticationError,), share=SLOW, longest=200),
    Parser("noise-message-2", _read_second, lambda: [SECOND], (AuthenticationError,), share=SLOW, longest=1_200),
    Parser("noise-message-3", _read_third, lambda: [THIRD], (AuthenticationError,), share=SLOW, longest=1_200),
    Parser(
        "handshake-server", _respond, lambda: [CLIENT.preamble.encode() + FIRST + THIRD], (ChannelError,), share=SLOW
    ),
    Parser("handshake-client", _initiate, lambda: [_honest_answer()], (ChannelError,), share=SLOW),
    Parser(
        "handshake-hostile-client",
        _respond_to_hostile,
        lambda: [_padded(CLIENT.payload)],
        (ChannelError,),
        share=SLOW,
        longest=BLOCK,
    ),
    Parser("handshake-hostile-server", _initiate_with_hostile, _hostile_answers, (ChannelError,), share=SLOW),
    Parser("records", _read_strange_records, _honest_records, (ChannelError,)),
    Parser(
        "records-hostile",
        _read_hostile_records,
        _hostile_records,
        (ChannelError,),
        share=SLOW,
        longest=1_024,
        memory_per_byte=2_048,  # two bytes may stand for a thousand records
        tokens=tuple(_instruction(kind) for kind in RecordType),
    ),
    Parser(
        "channel-hostile",
        _receive_from_hostile,
        lambda: [b"\x1b" + sample for sample in _hostile_records()],
        (ChannelError,),
        share=SLOW,
        memory_per_byte=2_048,
        tokens=tuple(_instruction(kind) for kind in RecordType),
    ),
    Parser(
        "address",
        _read_address,
        lambda: [b"127.0.0.1:9000", b"[::1]:0", "bücher.example:65535".encode(), b"unix:/run/s0"],
        (MisuseError,),
        source="is not an address",
        longest=6_000,
    ),
)
