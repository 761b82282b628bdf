"""A server of one counter, whose clients are channels in the hands of a test."""

import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio

from fsl_async.errors import ChannelError, FslError
from fsl_async.wire.codec import encode
from fsl_async.wire.messages import (
    AskOutcome,
    AskTask,
    Block,
    Enter,
    Opened,
    Receipt,
    Refused,
    Submit,
    TaskIs,
)
from parties.events import unobserved
from parties.schedule import ConversationLimits
from parties.server.clients.connection import ClientConnections
from parties.server.replies import AbuseError, RequestRefusedError
from tests.support.hand_made import reply
from tests.support.record_peer import RecordPeer
from transport import Channel, HandshakeSettings, KeyPair, Kind, MemoryNetwork, Role, Service

BULK = 300_000
LONGER = 500_000
ROUND = bytes(32)


def settings(name, role):
    pair = KeyPair.generate(random.Random(name).randbytes)
    return HandshakeSettings(pair.private, role, Kind.SIMULATION, random.Random(name).randbytes), pair.public


SERVER, SERVER_KEY = settings("server", Role.SERVER_0)


class Counter:
    """Answers clients by hand: a submission with a receipt, Enter and AskOutcome when it is told to."""

    def __init__(self):
        self.sizes = {BULK, LONGER}
        self.opened = trio.Event()
        self.working = trio.Event()
        self.working.set()
        self.waiting = 0
        self.content = b""
        self.begun = []

    def expects(self, length, head):
        return any(0 < length - size <= head for size in self.sizes)

    @asynccontextmanager
    async def begin(self, client, message, size):
        self.begun.append(client)
        if message.query == 7:
            raise RequestRefusedError.because("round-closed", f"not granted: {size} bytes")
        yield partial(self.complete, client, message)

    async def complete(self, client, message, bulk, room):
        self.begun.remove(client)
        return await self.carry_out(client, message, bulk, room)

    def at_once(self, client, message):
        return None

    async def ask(self, client, message, room):
        return await self.carry_out(client, message, b"", room)

    async def carry_out(self, client, message, bulk, room):
        match message:
            case AskTask():
                try:
                    await room(len(self.content))
                except RequestRefusedError as refusal:
                    return refusal.message, b""
                told = Block(round_id=ROUND, block="a block") if self.content else TaskIs(b"a task")
                return told, self.content
            case Submit(query=8):
                raise AbuseError(client, Refused(reason="limit", explanation="far too much"))
            case Submit():
                await self.working.wait()
                signature = bytes(bulk[:1]).ljust(64, b"\0")
                return Receipt(round_id=ROUND, digest=bytes(32), signature=signature), self.content
            case Enter() | AskOutcome():
                return await self.long_poll()

    async def long_poll(self):
        self.waiting += 1
        try:
            await self.opened.wait()
        finally:
            self.waiting -= 1
        return Opened(b"a configuration"), b""


class Overheard:
    """In place of a server's `MessageTap`: keeps what it is told."""

    def __init__(self, taken, sent):
        self.received = lambda *told: taken.append(told)
        self.sent = lambda *told: sent.append(told)


@dataclass
class House:
    """A server of one counter, and what it saw."""

    nursery: trio.Nursery
    limits: ConversationLimits = field(default_factory=ConversationLimits)
    counter: Counter = field(default_factory=Counter)
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    failures: list[FslError] = field(default_factory=list)
    taken: list = field(default_factory=list)
    sent: list = field(default_factory=list)
    names: dict = field(default_factory=dict)
    left: list = field(default_factory=list)
    longest_answer: int = 0

    async def open(self, longest=LONGER):
        self.conversations = ClientConnections(
            longest, self.longest_answer, self.limits, Overheard(self.taken, self.sent), unobserved
        )
        self.nursery.start_soon(self.conversations.life.show)
        service = Service(SERVER, self._admit, self._serve, observe=lambda origin, error: self.failures.append(error))
        await self.nursery.start(self.network.listen, "S0", service)

    async def dial(self, name="anna") -> Channel:
        own, key = settings(name, Role.CLIENT)
        self.names[key] = name
        return await self.network.dial("S0", SERVER_KEY, own)

    async def dial_records(self, name="anna") -> RecordPeer:
        own, key = settings(name, Role.CLIENT)
        self.names[key] = name
        return await RecordPeer.dial(self.network, "S0", SERVER_KEY, own)

    async def _admit(self, key, payload):
        return b""

    async def _serve(self, channel):
        try:
            await self.conversations.hold(channel, self.names[channel.peer_key], self.counter)
        finally:
            self.left.append((self.names[channel.peer_key], trio.current_time()))


async def house_with(nursery, **limits):
    house = House(nursery, ConversationLimits(**limits))
    await house.open()
    return house


def submit(size=BULK, query=0, byte=1):
    message = Submit(
        round_id=ROUND, query=query, seed=bytes(16), commitments=(bytes(32), bytes(32)), public_digest=bytes(32)
    )
    return encode(message, bytes([byte]) * size)


async def ask(channel, *parts):
    await channel.send(*parts)
    return await reply(channel)


async def until_lost(peer, portions):
    """Sends ready-made bytes, a portion a second, until the server has had enough."""
    with suppress(ChannelError):
        for portion in portions:
            await peer.wire.send(portion)
            await trio.sleep(1)
        pytest.fail("the server took everything")
