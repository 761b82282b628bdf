"""What the transport's tests have beside the wheel's laboratory: known randomness, and a network that tampers."""

import random
from dataclasses import dataclass, replace

import pytest
import trio

from fsl_async.errors import ChannelError, FslError
from tests.support.record_peer import RecordPeer
from transport import HandshakeSettings, KeyPair, Kind, MemoryNetwork, Role
from transport.testing.case import ALICE, SERVER, Lab


def key_pair(name: str) -> KeyPair:
    return KeyPair.generate(random.Random(f"key of {name}").randbytes)


def settings_of(pair: KeyPair, role: Role = Role.CLIENT, **changes) -> HandshakeSettings:
    """Settings whose randomness is the same each time."""
    draw = random.Random(pair.public)
    return replace(HandshakeSettings(pair.private, role, Kind.LIVE, draw.randbytes), **changes)


async def dial_records(lab: Lab) -> RecordPeer:
    return await RecordPeer.dial(lab.transport, lab.address, SERVER.public, settings_of(ALICE))


async def observed(lab: Lab, count: int) -> list[FslError]:
    """What went wrong with so many connections, once it has."""
    return [error for _, error in await lab.seen(count)]


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
