"""Two servers in memory whose clients come to doors; doors, and cores, end and come back as a test wants."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from fsl_async.errors import FslError
from fsl_async.task import Task
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import FromServer, Retrieve
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import InlineLane
from parties.events import ServerEvent
from parties.identity.credentials import Credentials
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.outcome import RoundOutcome
from parties.server.door.door import Door, DoorSetup
from parties.server.doors.core import DoorServer
from parties.server.limits import Schedule
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.storage.blobs.blobs import Blobs
from parties.storage.blobs.memory import MemoryBlobs
from parties.storage.store import MemoryStore
from parties.watch import silent
from tests.support.shop import FOR_EVER, LIBERAL, TASK, model
from transport import Channel, HandshakeSettings, Kind, MemoryNetwork, Role, SecureChannel


def core_address(index: int) -> str:
    return f"core-{index}"


@dataclass
class Doored:
    """Servers with doors.

    Attributes:
        nursery: where everything runs.
        doors: how many doors each server has; a server without any takes its clients itself.
        events: what each server told.
        failures: what servers and doors ended with, if they did.
    """

    nursery: trio.Nursery
    doors: tuple[int, int] = (1, 1)
    task: Task = TASK
    schedule: Schedule = FOR_EVER
    make_blobs: Callable[[], Blobs] = MemoryBlobs
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    registry: Registry = field(default_factory=Registry)
    events: list[ServerEvent] = field(default_factory=list)
    failures: list[FslError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.identities = tuple(Identity.generate(f"S{index}", self.randomness(f"S{index}")) for index in (0, 1))
        self.stores = (MemoryStore(), MemoryStore())
        self.blobs = (self.make_blobs(), self.make_blobs())
        self.servers: list[Any] = [None, None]
        self.cores: dict[int, DoorServer] = {}
        self.scopes: dict[str, trio.CancelScope] = {}
        self.opened: dict[str, Door] = {}

    def randomness(self, name: str) -> Any:
        return random.Random(name).randbytes

    async def open(self) -> None:
        for index in (0, 1):
            await self.open_core(index)
        for index in (0, 1):
            for number in range(1, self.doors[index] + 1):
                await self.open_door(index, f"door-{number}")

    # ---- cores

    def setup_of(self, index: int) -> ServerSetup:
        has_doors = bool(self.doors[index])
        return ServerSetup(
            task=self.task,
            index=index,
            identity=self.identities[index],
            peer=self.identities[1 - index].public,
            peer_address="link" if self.doors[0] else "S0",
            registry=self.registry,
            model=model(),
            address=("link" if index == 0 else "nowhere") if has_doors else f"S{index}",
            transport=self.network,
            store=self.stores[index],
            lane=InlineLane(),
            randomness=self.randomness(f"core {index} {len(self.events)}"),
            kind=Kind.SIMULATION,
            schedule=self.schedule,
            limits=replace(LIBERAL, per_key=4),
            clock=trio.current_time,
            observe=self.events.append,
            blobs=self.blobs[index] if has_doors else None,
        )

    async def open_core(self, index: int) -> None:
        server = self.servers[index] = Server(self.setup_of(index))
        await self.nursery.start(self._run_core, index, server)

    async def _run_core(self, index: int, server: Server, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        with trio.CancelScope() as scope:
            self.scopes[f"core {index}"] = scope
            async with trio.open_nursery() as nursery:
                if self.doors[index]:
                    self.cores[index] = DoorServer(server, self.network, core_address(index))
                    await nursery.start(self.cores[index].listen)
                await nursery.start(server.run)
                task_status.started()

    async def kill_core(self, index: int) -> None:
        self.scopes[f"core {index}"].cancel()
        await trio.sleep(0.01)

    # ---- doors

    async def open_door(self, index: int, name: str, **changes: Any) -> Door:
        door = self.opened[f"{name} of {index}"] = self.door(index, name, **changes)
        await self.nursery.start(self._run_door, index, name, door)
        return door

    def door(self, index: int, name: str, **changes: Any) -> Door:
        identity = self.identities[index]
        fields: dict[str, Any] = {
            "task": self.task,
            "index": index,
            "name": name,
            "channel_secret": identity.channel_secret,
            "channel": identity.public.channel,
            "peer": self.identities[1 - index].public.channel,
            "peer_address": self.address_of(1 - index),
            "address": f"S{index}" if name == "door-1" else f"S{index}/{name}",
            "transport": self.network,
            "core_address": core_address(index),
            "core_transport": self.network,
            "blobs": self.blobs[index],
            "lane": InlineLane(),
            "randomness": self.randomness(f"{name} of {index} {len(self.events)}"),
            "kind": Kind.SIMULATION,
            "limits": LIBERAL,
        }
        return Door(DoorSetup(**(fields | changes)))

    async def _run_door(
        self, index: int, name: str, door: Door, *, task_status: Any = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.CancelScope() as scope:
            self.scopes[f"{name} of {index}"] = scope
            await door.run(task_status=task_status)

    async def kill_door(self, index: int, name: str) -> None:
        self.scopes[f"{name} of {index}"].cancel()
        await trio.sleep(0.01)

    def address_of(self, index: int) -> str:
        return f"S{index}"

    # ---- clients

    def client(self, name: str, *, through: tuple[str, str] | None = None, **changes: Any) -> Client:
        """A client that comes to the first doors, or to those at other addresses."""
        identity = Identity.generate(name, self.randomness(name))
        if self.registry.by_name(name) is None:
            self.registry.add(identity.public)
        setup = ClientSetup(
            task=self.task,
            identity=identity,
            servers=(self.identities[0].public, self.identities[1].public),
            addresses=through or ("S0", "S1"),
            transport=self.network,
            lane=InlineLane(),
            randomness=self.randomness(f"client {name}"),
            kind=Kind.SIMULATION,
            watch=silent,
        )
        return Client(replace(setup, **changes))

    async def finish_round(self) -> RoundOutcome:
        """Close the open round at S0; both servers must tell the same outcome."""
        runs = [await server.next_round(0) for server in self.servers]
        outcome = await self.servers[0].close_round()
        other = await self.servers[1].settled_outcome(runs[1])
        assert outcome.clients == other.clients
        return outcome

    def told(self, kind: type[ServerEvent]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def doored(doors: tuple[int, int] = (1, 1), **changes: Any) -> AsyncIterator[Doored]:
    """Two servers with so many doors each, for as long as the block lasts."""
    async with trio.open_nursery() as nursery:
        house = Doored(nursery, doors, **changes)
        await house.open()
        yield house
        nursery.cancel_scope.cancel()


async def dial_as_client(house: Doored, name: str, address: str) -> SecureChannel:
    """A bare connection of a client's, to a door or a server at that address."""
    identity = Identity.generate(name, house.randomness(name))
    credentials = Credentials.of(identity, house.task.digest()).encode()
    own = HandshakeSettings(identity.channel_secret, Role.CLIENT, Kind.SIMULATION, house.randomness(name), credentials)
    return await house.network.dial(address, house.identities[int(address[1])].public.channel, own)


async def retrieve_anew(channel: Channel, run: Any, query: int) -> Any:
    """The reply to a retrieval whose seed is not the committed one."""
    message = Retrieve(
        round_id=run.round_id,
        query=query,
        seed=bytes(16),
        commitments=(bytes(32), bytes(32)),
        public_digest=bytes(32),
    )
    await channel.send(*encode(message))
    return decode(await channel.receive(10**6), FromServer, "S0").message
