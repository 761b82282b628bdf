"""A core in the hands of a test: it says to a door what the test lets it say."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import trio

from fsl_async.errors import ChannelError
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.door_bundles import Outgoing, unbundled
from fsl_async.wire.door_messages import (
    AdmitKey,
    Admitted,
    Answered,
    Begin,
    CoreHello,
    Deposited,
    DoorToCore,
    Granted,
    RoundOpened,
)
from fsl_async.wire.messages import FromClient, Message, Receipt
from parties.compute import InlineLane
from parties.server.door.door import Door, DoorSetup
from parties.storage.blobs.memory import MemoryBlobs
from transport import HandshakeSettings, KeyPair, Kind, MemoryNetwork, Role, SecureChannel, Service


def pair(name: str) -> KeyPair:
    return KeyPair.generate(random.Random(f"key of {name}").randbytes)


SERVER, PEER = pair("S0"), pair("S1")


def said(message: Message, bulk: bytes = b"") -> bytes:
    return b"".join(map(bytes, encode(message, bulk)))


def bundle(*entries: tuple[Any, bytes]) -> bytes:
    """Messages with their bulk, as a core or a door sends them together."""
    outgoing = Outgoing()
    for message, bulk in entries:
        outgoing.add(message, bulk)
    return b"".join(map(bytes, outgoing.take()))


@dataclass
class HandCore:
    """Answers a door by hand.

    Attributes:
        heard: what the door has said, in order, and `bundles`: the same as it came.
        answers: by the type of a message, what to answer; a function of it, which returns nothing for no answer.
    """

    nursery: trio.Nursery
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    heard: list[Message] = field(default_factory=list)
    bundles: list[list[Message]] = field(default_factory=list)
    channel: SecureChannel | None = None
    answers: dict[type, Callable[[Any], Awaitable[tuple[Message, bytes] | None] | tuple[Message, bytes] | None]] = (
        field(default_factory=dict)
    )
    names: dict[bytes, str] = field(default_factory=dict)
    refusal: Any = None
    running: trio.CancelScope = field(default_factory=trio.CancelScope)

    def __post_init__(self) -> None:
        self.answers = {
            AdmitKey: lambda asked: (
                Admitted(call=asked.call, name=self.names[asked.key], welcome=b"", peer=asked.key == PEER.public),
                b"",
            ),
            Begin: self._begun,
            Deposited: lambda asked: (
                Answered(asked.call),
                said(Receipt(round_id=bytes(32), digest=asked.part, signature=b"s" * 64)),
            ),
        }

    def _begun(self, asked: Begin) -> tuple[Message, bytes]:
        decode(asked.request, FromClient, "the door")
        if asked.size:
            return Granted(call=asked.call), b""
        return Answered(asked.call), said(Receipt(round_id=bytes(32), digest=b"", signature=b"s" * 64))

    async def open(self) -> None:
        settings = HandshakeSettings(SERVER.private, Role.CORE_0, Kind.SIMULATION, random.Random(1).randbytes)
        service = Service(settings, self._admit, self._serve)

        async def listen(*, task_status) -> None:
            with self.running:
                await self.network.listen("core", service, task_status=task_status)

        await self.nursery.start(listen)

    async def restart(self) -> None:
        """End, and come back without knowing anything."""
        self.running.cancel()
        await trio.sleep(0.01)
        self.running = trio.CancelScope()
        await self.open()

    async def say(self, message: Message, bulk: bytes = b"") -> None:
        await self.channel.send(bundle((message, bulk)))

    async def open_round(self, config) -> None:
        opened = RoundOpened(number=config.number, round_id=config.round_id())
        await self.say(opened, config.canonical())

    async def _admit(self, key: bytes, payload: bytes) -> Any:
        return self.refusal or said(CoreHello(longest_answer=10_000, connections=4))

    async def _serve(self, channel: SecureChannel) -> None:
        self.channel = channel
        async with trio.open_nursery() as nursery:
            while True:
                await channel.awaited()
                data = await channel.receive(10**6)
                said_together = [message for message, _ in unbundled(data, DoorToCore, "the door")]
                self.bundles.append(said_together)
                for message in said_together:
                    self.heard.append(message)
                    nursery.start_soon(self._answer, channel, message)

    async def _answer(self, channel: SecureChannel, message: Message) -> None:
        found = self.answers.get(type(message), lambda asked: None)(message)
        if isinstance(found, Awaitable):
            found = await found
        if found is not None:
            await channel.send(bundle(found))

    def of(self, kind: type) -> list[Any]:
        """What the door has said of that kind."""
        return [message for message in self.heard if isinstance(message, kind)]


async def open_door(core: HandCore, task, name: str = "door-1", **changes: Any) -> Door:
    """A door of that core, which listens at "S0"."""
    fields: dict[str, Any] = {
        "task": task,
        "index": 0,
        "name": name,
        "channel_secret": SERVER.private,
        "channel": SERVER.public,
        "peer": PEER.public,
        "peer_address": "S1",
        "address": "S0",
        "transport": core.network,
        "core_address": "core",
        "core_transport": core.network,
        "blobs": MemoryBlobs(),
        "lane": InlineLane(),
        "randomness": random.Random(name).randbytes,
        "kind": Kind.SIMULATION,
        "release": "1",
    }
    door = Door(DoorSetup(**(fields | changes)))
    await core.nursery.start(door.run)
    return door


async def dial(core: HandCore, name: str, payload: bytes = b"") -> SecureChannel:
    """A client's connection to the door at "S0"."""
    own = PEER if name == "S1" else pair(name)
    core.names[own.public] = name
    role = Role.SERVER_1 if name == "S1" else Role.CLIENT
    settings = HandshakeSettings(own.private, role, Kind.SIMULATION, random.Random(name).randbytes, payload)
    return await core.network.dial("S0", SERVER.public, settings)


__all__ = ["PEER", "SERVER", "ChannelError", "HandCore", "dial", "open_door", "pair", "said"]
