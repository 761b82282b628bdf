"""What the transport's tests share: endpoints with known keys, and a memory network that records and tampers."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
import trio

from fsl_async.errors import ChannelError, FslError
from tests.support.record_peer import RecordPeer
from transport import (
    ChannelClosedError,
    HandshakeSettings,
    KeyPair,
    Kind,
    Limits,
    MemoryNetwork,
    Refusal,
    Role,
    SecureChannel,
    Service,
    Transport,
)

LARGE = 10**9
FREE = Limits(handshakes_per_second=10_000, burst=10_000)


def key_pair(name: str) -> KeyPair:
    return KeyPair.generate(random.Random(f"key of {name}").randbytes)


SERVER = key_pair("server")
ALICE = key_pair("alice")
STRANGER = key_pair("stranger")


def settings_of(pair: KeyPair, role: Role = Role.CLIENT, **changes) -> HandshakeSettings:
    draw = random.Random(pair.public)
    return replace(HandshakeSettings(pair.private, role, Kind.LIVE, draw.randbytes), **changes)


def server_settings() -> HandshakeSettings:
    """The server's settings, its randomness at the beginning."""
    return settings_of(SERVER, Role.SERVER_0, payload=b"this is S0")


SERVER_SETTINGS = server_settings()


async def admit_known(key: bytes, payload: bytes) -> bytes | Refusal:
    """Lets in everybody but the stranger."""
    return Refusal("unknown client") if key == STRANGER.public else b"welcome, " + payload


async def echo(channel: SecureChannel) -> None:
    while True:
        try:
            message = await channel.receive(LARGE)
        except ChannelClosedError:
            return
        await channel.send(message)


SERVICE = Service(SERVER_SETTINGS, admit_known, echo, FREE)


@dataclass
class Lab:
    """One server at one address of one transport, and what its listener observed."""

    transport: Transport
    address: str
    nursery: trio.Nursery
    failures: list[FslError] = field(default_factory=list)

    async def serve(self, handler: Callable = echo, **changes) -> None:
        service = replace(
            SERVICE, handler=handler, observe=lambda origin, error: self.failures.append(error), **changes
        )
        self.address = await self.nursery.start(self.transport.listen, self.address, service)

    async def dial_records(self) -> RecordPeer:
        return await RecordPeer.dial(self.transport, self.address, SERVER.public, settings_of(ALICE))

    async def dial(self, pair: KeyPair = ALICE, server_key: bytes = SERVER.public, **changes) -> SecureChannel:
        return await self.transport.dial(self.address, server_key, settings_of(pair, **changes))


@dataclass
class Fault:
    """Happens at one byte of one direction of every connection.

    Attributes:
        outgoing: whether it is in the dialling side's outgoing bytes.
        place: which byte.
        bit: what to change in it; 0 cuts the connection there, in both directions.
    """

    outgoing: bool
    place: int
    bit: int = 0


NO_FAULT = Fault(outgoing=True, place=10**12)


class Tap(trio.abc.Stream):
    """Sits on the dialling end of a stream, records both directions and commits the fault."""

    def __init__(self, stream: trio.abc.Stream, fault: Fault) -> None:
        self.stream = stream
        self.fault = fault
        self.sent = bytearray()
        self.received = bytearray()

    async def send_all(self, data: bytes) -> None:
        tampered = self._tampered(bytes(data), len(self.sent), outgoing=True)
        self.sent += data
        await self.stream.send_all(tampered)
        if len(tampered) < len(data):
            await self.aclose()

    async def wait_send_all_might_not_block(self) -> None:
        await self.stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = await self.stream.receive_some(max_bytes)
        tampered = self._tampered(data, len(self.received), outgoing=False)
        self.received += data
        if len(tampered) < len(data):
            await self.stream.aclose()
        return tampered

    async def aclose(self) -> None:
        await self.stream.aclose()

    def _tampered(self, data: bytes, start: int, outgoing: bool) -> bytes:
        place = self.fault.place - start
        if self.fault.outgoing != outgoing or not 0 <= place < len(data):
            return data
        if not self.fault.bit:
            return data[:place]
        return data[:place] + bytes([data[place] ^ self.fault.bit]) + data[place + 1 :]


class TappedNetwork(MemoryNetwork):
    """A memory network whose connections are recorded and tampered with."""

    def __init__(self, fault: Fault = NO_FAULT) -> None:
        super().__init__()
        self.fault = fault
        self.taps: list[Tap] = []

    def make_pair(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        near, far = super().make_pair()
        self.taps.append(Tap(near, self.fault))
        return self.taps[-1], far


async def expect_channel_error(function, *arguments):
    with pytest.raises(ChannelError):
        await function(*arguments)


async def until_observed(lab, count):
    with trio.fail_after(5):
        while len(lab.failures) < count:
            await trio.lowlevel.checkpoint()
    return lab.failures
