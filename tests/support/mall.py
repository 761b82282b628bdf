"""Two servers with several tasks each, over one memory network: what tests of servers with several tasks share."""

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import trio

from fsl_async.task import Task
from parties.client.client import Client
from parties.events import ServerEvent
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.outcome import RoundOutcome
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.server.task_router import Listening, TaskRouter
from parties.storage.store import Store
from tests.support.shop import LIBERAL, TASK, Shop, finish_round
from transport import Limits, MemoryNetwork


def called(name: str, **changes: Any) -> Task:
    """The shop's task under another name."""
    return msgspec.structs.replace(TASK, name=name, **changes)


@dataclass
class Mall:
    """Two routers, and the servers of their tasks.

    Attributes:
        nursery: where all run; ends with the test.
        servers: by task and number.
        failures: what a task's server ended with.
        events: what each server has reported.
    """

    nursery: trio.Nursery
    limits: Limits = LIBERAL
    network: MemoryNetwork = field(default_factory=MemoryNetwork)
    servers: dict[tuple[str, int], Server] = field(default_factory=dict)
    scopes: dict[tuple[str, int], trio.CancelScope] = field(default_factory=dict)
    failures: dict[tuple[str, int], BaseException] = field(default_factory=dict)
    events: dict[tuple[str, int], list[ServerEvent]] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    routers: list[TaskRouter] = field(default_factory=list)
    failed: trio.Event = field(default_factory=trio.Event)

    def __post_init__(self) -> None:
        self.identities = (Identity.generate("S0"), Identity.generate("S1"))
        self.known: dict[str, Identity] = {}
        self.registries: dict[str, Registry] = {}

    async def open(self) -> None:
        for index in (0, 1):
            setup = self.setup_of(TASK, index)
            settings = Server(setup).handshake()
            router = TaskRouter(Listening.of(setup, settings, several=True), self._hear)
            self.routers.append(router)
            await self.nursery.start(router.listen)

    def _hear(self, origin: str, error: Exception) -> None:
        self.refused.append(str(error))

    async def serve(self, task: Task, *indices: int, **changes: Any) -> None:
        for index in indices or (0, 1):
            events = self.events.setdefault((task.name, index), [])
            setup = replace(self.setup_of(task, index), observe=events.append, **changes)
            await self.nursery.start(self._run, task.name, index, Server(setup))

    async def _run(self, name: str, index: int, server: Server, *, task_status: trio.TaskStatus[None]) -> None:
        self.servers[name, index] = server
        try:
            with trio.CancelScope() as scope:
                self.scopes[name, index] = scope
                await server.run_behind(self.routers[index], task_status=task_status)
        except Exception as error:
            self.failures[name, index] = error
            self.failed.set()

    def _shop(self, task: Task) -> Shop:
        """A task's servers and clients as a shop has them."""
        shop = Shop.in_memory(self.nursery, task=task, transports=(self.network,) * 2, addresses=["S0", "S1"])
        shop.registry = self.registries.setdefault(task.name, Registry())
        shop.identities, shop.known = self.identities, self.known
        return shop

    def setup_of(self, task: Task, index: int, store: Store | None = None) -> ServerSetup:
        setup = self._shop(task).setup_of(index)
        return replace(setup, peer_address="S0", limits=self.limits, store=store or setup.store)

    def admit(self, name: str, *tasks: str) -> None:
        """Put a client on the lists of these tasks."""
        identity = self.known.setdefault(name, Identity.generate(name))
        for task in tasks:
            self.registries.setdefault(task, Registry()).add(identity.public)

    def client(self, name: str, task: Task, **changes: Any) -> Client:
        self.known.setdefault(name, Identity.generate(name))
        return self._shop(task).client(name, **changes)

    async def finish_round(self, task: str) -> RoundOutcome:
        """Close a task's open round; both servers must tell the same outcome."""
        return await finish_round([self.servers[task, index] for index in (0, 1)])
