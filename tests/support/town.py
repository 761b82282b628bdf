"""Deployments in one folder: the files of all parties, and both servers in this loop or in a thread of their own."""

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import trio

from fsl_async.task import Task
from parties import connect, connect_blocking
from parties.client.blocking import BlockingClient
from parties.commands.demo.processes import SERVERS, write_parties, write_server
from parties.deployment.server import server_setup
from parties.files.models import save_model
from parties.outcome import Model, RoundOutcome
from parties.server.server import Server
from parties.settings.writing import free_addresses, to_toml
from tests.support.serving import ENDS_WITHIN
from tests.support.shop import TASK, Basket, finish_round, model

NAMES = ("anna", "ben", "carol")


def deploy(
    folder: Path,
    clients: Iterable[str],
    addresses: Sequence[str] = (),
    *,
    task: Task = TASK,
    start: Model | None = None,
    servers: Sequence[str] = SERVERS,
    **keys: Any,
) -> Sequence[str]:
    """Write all files of two servers and their clients: keys, lists, the model, and each party's own file.

    Args:
        folder: where.
        clients: who is on the list.
        addresses: where the servers listen; left out, at ports of this host that are free.
        task: what is learnt.
        start: the model that the servers start from; left out, the shop's.
        servers: what the servers are called.
        keys: of both servers' files; in a text, {} is the server's number. A round closes with two clients.

    Returns:
        The addresses.
    """
    addresses = addresses or free_addresses(2)
    write_parties(folder, task, addresses, clients, servers)
    ordinary: dict[str, Any] = {"threads": 1, "rounds": {"clients": 2}}
    if task.model_blocks:
        save_model(folder / "model.npz", model() if start is None else start)
    else:
        ordinary["model"] = None
    for number, address in enumerate(addresses):
        own = {key: value.format(number) if isinstance(value, str) else value for key, value in keys.items()}
        write_server(folder, number, address, servers[number], **ordinary | own)
    for name in clients:
        (folder / f"{name}.toml").write_text(to_toml({"task": "task.toml", "identity": f"{name}.key"}))
    return addresses


@asynccontextmanager
async def servers_of(*files: Path, **changes: Any) -> AsyncIterator[list[Server]]:
    """The servers of these files, as they run until the block ends, with some fields of their setups changed."""
    setups = [await server_setup(file) for file in files]
    servers = [Server(replace(setup, **changes)) for setup in setups]
    try:
        async with trio.open_nursery() as nursery:
            for server in servers:
                await nursery.start(server.run)
            yield servers
            nursery.cancel_scope.cancel()
    finally:
        for setup in setups:
            await setup.store.aclose()
            await setup.bulk.aclose()


async def happens(is_so: Callable[[], bool]) -> None:
    """Wait until something is so that nobody tells."""
    with trio.fail_after(ENDS_WITHIN):
        while not is_so():  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


async def take_part(folder: Path, *names: str) -> None:
    """These clients submit their baskets at the same time, each by its own file, and are counted."""

    async def submit(name: str) -> None:
        async with connect(folder / f"{name}.toml") as client:
            await client.submit(Basket(name).update)
            assert (await client.outcome()).counted

    async with trio.open_nursery() as nursery:
        for name in names:
            nursery.start_soon(submit, name)


class Town:
    """Two servers in a thread, and the files that clients, in whatever process, need to reach them."""

    def __init__(self, folder: Path, task: Task = TASK, **keys: Any) -> None:
        limits = {"handshakes_per_second": 10_000.0, "burst": 10_000, "per_key": 64}
        ordinary = {"store": "memory", "limits": limits, "rounds": {}, "compute": {"engine": "inline"}}
        self.folder = folder
        self.addresses = deploy(folder, NAMES, task=task, **ordinary | keys)
        self.ready = threading.Event()
        self.thread = threading.Thread(target=trio.run, args=(self._run,))

    async def _run(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self.stop = trio.Event()
        async with servers_of(self.folder / "S0.toml", self.folder / "S1.toml") as self.servers:
            self.ready.set()
            await self.stop.wait()

    def finish_round(self) -> RoundOutcome:
        return trio.from_thread.run(finish_round, self.servers, trio_token=self.token)

    def connect(self, name: str, **words: Any) -> BlockingClient:
        return connect_blocking(self.folder / "task.toml", self.folder / f"{name}.key", **words)

    def __enter__(self) -> Self:
        self.thread.start()
        assert self.ready.wait(30)
        return self

    def __exit__(self, *error: object) -> None:
        trio.from_thread.run_sync(self.stop.set, trio_token=self.token)
        self.thread.join(30)
