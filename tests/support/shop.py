"""A little shop: the task, the parties and the ways to meddle with them that the tests of the parties share."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import trio

from fsl_async.digests import Domain
from fsl_async.errors import StorageError
from fsl_async.ring import Ring
from fsl_async.task import Dense, Sparse, Task
from fsl_async.wire.codec import decode, encode
from fsl_async.wire.messages import Finished, FromClient, FromPeer, FromServer, Hint, Message, Submit
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import ComputeLane, InlineLane
from parties.identity.keys import Identity, PublicIdentity
from parties.identity.registry import Registry
from parties.outcome import RoundOutcome
from parties.schedule import Schedule
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.simulation.network import Network
from parties.statement import Statement
from parties.storage.store import Change, MemoryStore, Put, Store
from parties.watch import silent
from transport import Channel, ConnectionLostError, Kind, Limits, MemoryNetwork, TcpTransport, Transport

ROWS, WIDTH, SELECT, HEAD = 300, 3, 8, 5
TASK = Task(
    name="shop",
    blocks=(Sparse(name="items", rows=ROWS, width=WIDTH, select=SELECT), Dense(name="head", size=HEAD)),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=6,
)
FOR_EVER = Schedule(clients=10**6)
LIBERAL = Limits(handshakes_per_second=10_000, burst=10_000, per_key=64)


def model() -> dict[str, np.ndarray]:
    """Every weight another float32 with an exact binary fraction, so that sums are exact in any order."""
    return {
        "items": np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) / 4,
        "head": np.arange(HEAD, dtype=np.float32) - 2,
    }


@dataclass
class Basket:
    """What one client submits, derived from its name: whole numbers of 2**-16, so sums are exact in any order."""

    name: str
    task: Task = TASK
    update: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        draw, self.update = np.random.default_rng(list(self.name.encode())), {}
        for block in self.task.blocks:
            rows, shape = None, block.shape
            if isinstance(block, Sparse):
                rows = draw.choice(block.rows, size=int(draw.integers(1, block.select + 1)), replace=False)
                shape = (len(rows), block.width)
            values = draw.integers(-(2**20), 2**20, size=shape) / 2**16
            self.update[block.name] = values if rows is None else (rows, values)

    rows = property(lambda self: self.update["items"][0])
    values = property(lambda self: self.update["items"][1])
    head = property(lambda self: self.update["head"])

    def save(self, path: Path) -> None:
        """As a file of which a command makes a submission."""
        arrays: dict[str, np.ndarray] = {}
        for name, of in self.update.items():
            arrays |= {f"{name}.rows": of[0], f"{name}.values": of[1]} if isinstance(of, tuple) else {name: of}
        np.savez(path, **arrays)


SERVER_FILE = {
    "server": 0,
    "identity": "S0.key",
    "task": "task.toml",
    "clients": "clients.toml",
    "model": "model.npz",
    "listen": "127.0.0.1:0",
    "store": "memory",
}
"""What S0's own file says where nothing else is told."""


def plain_sum(names: Iterable[str], task: Task = TASK) -> dict[str, np.ndarray]:
    """The sum of the baskets of those names, added in the clear."""
    total = {block.name: np.zeros(block.shape) for block in task.blocks}
    for name in names:
        for block, of in Basket(name, task).update.items():
            if isinstance(of, tuple):
                total[block][of[0]] += of[1]
            else:
                total[block] += of
    return total


def model_after(*rounds: Iterable[str]) -> dict[str, np.ndarray]:
    """The model after rounds in which these clients' baskets were counted."""
    now = model()
    for names in rounds:
        now = {block: (now[block] + total).astype(np.float32) for block, total in plain_sum(names).items()}
    return now


def assert_exact(outcome: RoundOutcome, *names: str) -> None:
    """The outcome is the exact sum over exactly these clients."""
    assert outcome.clients == tuple(sorted(names))
    assert_equal(outcome.update, plain_sum(names))


def assert_equal(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Block by block, every number is the same."""
    assert sorted(found) == sorted(expected)
    for block, array in expected.items():
        np.testing.assert_array_equal(found[block], array, err_msg=block)


async def take_part(client: Client, *, retrieves: bool = True, wait: bool = False, again: bool = False) -> None:
    """One client's round: retrieve its rows, check them against the model it was told of, submit its basket."""
    basket = Basket(client.name)
    if retrieves:
        found = await client.retrieve({"items": basket.rows, "head": ...}, wait=wait)
        assert found["items"].shape == (len(basket.rows), WIDTH)
    await client.submit(basket.update, wait=wait, again=again)


async def all_take_part(*clients: Client) -> None:
    """Each in its turn."""
    for client in clients:
        await take_part(client)


async def honest_round(network: "Network | Shop", *also: str) -> RoundOutcome:
    """Two honest clients, anna and ben, in the round that is open; it must count them, and `also`, exactly."""
    async with network.client("anna") as anna, network.client("ben") as ben:
        await all_take_part(anna, ben)
    outcome = await network.finish_round()
    assert_exact(outcome, "anna", "ben", *also)
    return outcome


# ---- meddling

Hook = Callable[[str, Message, bytes], Awaitable[bytes | None]]
"""Takes the address dialled, a message and its bytes; gives the bytes that go on, or None to lose them."""


async def pass_on(address: str, message: Message, data: bytes) -> bytes | None:
    """Meddles with nothing."""
    return data


def with_fields(kind: Any, **fields: Any) -> Hook:
    """Changes fields of one kind of message."""

    async def change(address: str, message: Message, data: bytes) -> bytes:
        if not isinstance(message, kind):
            return data
        bulk = decode(data, FromClient | FromPeer | FromServer, "the test").bulk
        return b"".join(encode(msgspec.structs.replace(message, **fields), bulk))

    return change


def forging(network: Network, lie: Callable[[Statement], dict[str, Any]], *liars: str, others: Hook = pass_on) -> Hook:
    """These servers state and sign what is not so of carol's outcome; all else goes through `others`."""

    async def forge(address: str, message: Message, data: bytes) -> bytes | None:
        if address not in liars or not isinstance(message, Finished):
            return await others(address, message, data)
        setup = network.servers[int(address[1])].setup
        told = Statement.parse(decode(data, FromServer, address).bulk, setup.task, "carol", address)
        content = msgspec.structs.replace(told, **lie(told)).canonical()
        signature = setup.identity.sign(Domain.STATEMENT, content)
        return b"".join(encode(Finished(round_id=message.round_id, signature=signature), content))

    return forge


class Meddler(Transport):
    """Another transport whose dialled channels' messages go through two hooks."""

    def __init__(self, inner: Transport, *, outgoing: Hook = pass_on, incoming: Hook = pass_on) -> None:
        self.inner = inner
        self.outgoing = outgoing
        self.incoming = incoming
        self.channels: list[Channel] = []

    async def connect(self, address: str) -> trio.abc.Stream:
        return await self.inner.connect(address)

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        await self.inner.listen(address, service, task_status=task_status)

    async def dial(self, address, *words) -> Channel:
        channel = MeddledChannel(await self.inner.dial(address, *words), address, self)
        self.channels.append(channel)
        return channel


class MeddledChannel(Channel):
    """Another channel, whose state it shares, with two hooks."""

    def __init__(self, inner: Channel, address: str, meddler: Meddler) -> None:
        self.__dict__ = vars(inner)
        self.inner = inner
        self.address = address
        self.meddler = meddler
        self.held: list[bytearray] = []

    async def send(self, *parts, **words) -> None:
        data = b"".join(parts)
        message = decode(data, FromClient | FromPeer, "the test").message
        try:
            changed = await self.meddler.outgoing(self.address, message, data)
        except ConnectionLostError:
            await self.inner.aclose()
            raise
        if changed is not None:
            await self.inner.send(changed, **words)

    async def receive(self, limit: int, **words) -> bytearray:
        """A message that a hook is cancelled over is kept: a receive that is cancelled loses nothing."""
        while True:
            if not self.held:
                self.held.append(await self.inner.receive(limit, **words))
            message = decode(self.held[0], FromServer | FromPeer, "the test").message
            changed = await self.meddler.incoming(self.address, message, bytes(self.held[0]))
            self.held.clear()
            if changed is not None:
                return bytearray(changed)

    async def discard(self, **words) -> None:
        await self.receive(await self.announced(**words), **words)


class FailingStore(MemoryStore):
    """Fails with an error for as long as it has one."""

    error: StorageError | None = None

    async def commit(self, *changes: Change) -> None:
        if self.error is not None:
            raise self.error
        await super().commit(*changes)


async def copy_of(store: Store) -> MemoryStore:
    """What a backup of a client's state is."""
    copy = MemoryStore()
    await copy.commit(*[Put(key, bytes(await store.blob(key))) for key in await store.keys("")])
    return copy


def interrupt_submissions(sender: str, receiver: str, message: Message, bulk: int) -> None:
    """A client's `watch` that interrupts it before the first byte of a submission leaves."""
    if isinstance(message, Submit | Hint):
        raise KeyboardInterrupt


def meddled(client: Client, **hooks: Hook) -> Client:
    """A fresh client of the same name, keys and randomness, whose messages go through hooks."""
    return Client(replace(client.setup, transport=Meddler(client.setup.transport, **hooks)))


# ---- servers and clients made by hand


@dataclass
class Shop:
    """Two servers, made by hand, and what is needed to make their clients.

    Attributes:
        nursery: where both run; ends with the test.
        transports: through which S0 and S1 dial and listen.
        failures: what each server ended with, if it ended.
    """

    nursery: trio.Nursery
    task: Task = TASK
    models: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = field(default_factory=lambda: (model(), model()))
    transports: tuple[Transport, Transport] = field(default_factory=lambda: (TcpTransport(), TcpTransport()))
    listen_at: tuple[str, str] = ("127.0.0.1:0", "127.0.0.1:0")
    schedule: Schedule = FOR_EVER
    lane: ComputeLane = field(default_factory=InlineLane)
    registry: Registry = field(default_factory=Registry)
    servers: list[Server] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)
    failed: trio.Event = field(default_factory=trio.Event)
    all_failed: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.identities = (Identity.generate("S0"), Identity.generate("S1"))
        self.known: dict[str, Identity] = {}

    @classmethod
    def in_memory(cls, nursery: trio.Nursery, **fields: Any) -> Self:
        """Over one memory network."""
        network = MemoryNetwork()
        return cls(nursery, **{"transports": (network, network), "listen_at": ("S0", "S1")} | fields)

    @classmethod
    def meddled(cls, nursery: trio.Nursery, **hooks: Hook) -> Self:
        """The same, and what S1 says and hears on the link to S0 goes through hooks."""
        network = MemoryNetwork()
        return cls.in_memory(nursery, transports=(network, Meddler(network, **hooks)))

    @property
    def link(self) -> Channel:
        """The last channel that a meddled S1 dialled."""
        meddler = self.transports[1]
        assert isinstance(meddler, Meddler)
        return meddler.channels[-1]

    async def open(self) -> Self:
        for index in (0, 1):
            await self.open_one(index)
        return self

    async def open_one(self, index: int) -> None:
        server = Server(self.setup_of(index))
        self.servers.append(server)
        self.addresses.append(await self.nursery.start(self._run, server))

    async def _run(self, server: Server, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        try:
            await server.run(task_status=task_status)
        except Exception as error:
            self.failures.append(error)
            self.failed.set()
            if len(self.failures) == 2:
                self.all_failed.set()

    def setup_of(self, index: int) -> ServerSetup:
        return ServerSetup(
            task=self.task,
            index=index,
            identity=self.identities[index],
            peer=self.identities[1 - index].public,
            peer_address=self.addresses[0] if index else "",
            registry=self.registry,
            model=self.models[index],
            address=self.listen_at[index],
            transport=self.transports[index],
            store=MemoryStore(),
            lane=self.lane,
            randomness=os.urandom,
            kind=Kind.LIVE,
            schedule=self.schedule,
            limits=LIBERAL,
            clock=trio.current_time,
        )

    def client(self, name: str, **changes: Any) -> Client:
        if name not in self.known:
            self.known[name] = Identity.generate(name)
            self.registry.add(self.known[name].public)
        servers: tuple[PublicIdentity, PublicIdentity] = (self.identities[0].public, self.identities[1].public)
        setup = ClientSetup(
            task=self.task,
            identity=self.known[name],
            servers=servers,
            addresses=(self.addresses[0], self.addresses[1]),
            transport=self.transports[0],
            lane=self.lane,
            randomness=os.urandom,
            kind=Kind.LIVE,
            watch=silent,
        )
        return Client(replace(setup, **changes))

    @property
    def model(self) -> dict[str, np.ndarray]:
        """S0's."""
        return dict(self.servers[0].model)

    async def finish_round(self) -> RoundOutcome:
        """Close the open round; both servers must tell the same outcome."""
        return await finish_round(self.servers)

    async def finish_union(self) -> dict[str, np.ndarray]:
        """Close the open round of a union, and return the union."""
        return dict((await self.finish_round()).union)


async def finish_round(servers: Sequence[Server]) -> RoundOutcome:
    """Close the open round at S0; both servers must tell the same outcome."""
    runs = [await server.next_round(0) for server in servers]
    outcome = await servers[0].close_round()
    assert (await servers[1].settled_outcome(runs[1])).clients == outcome.clients
    return outcome


@asynccontextmanager
async def opened(*clients: Client) -> AsyncIterator[tuple[Client, ...]]:
    """Several clients, connected for as long as the block lasts."""
    async with AsyncExitStack() as stack:
        for client in clients:
            await stack.enter_async_context(client)
        yield clients
