"""A simulation in a thread of its own, for programs that are not on trio: its network, and the clients on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial

import numpy.typing as npt
import trio

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.client.client import Client
from parties.compute import ComputeLane, InlineLane
from parties.simulation.network import Network, running
from parties.simulation.pausing import Callers, Pausing
from parties.threads import FOR_EVER, LoopThread, ResultT, Work

OVER = "the simulation is over; begin another one"


class Stage:
    """A network and its connected clients.

    Attributes:
        network: what the clients are connected to.
    """

    def __init__(self, network: Network, nursery: trio.Nursery) -> None:
        self.network = network
        self._nursery = nursery
        self._clients: list[Client] = []

    async def enter(self, name: str) -> Client:
        """Connect a client of that name."""
        client = self.network.client(name)
        await self._nursery.start(client.run)
        self._clients.append(client)
        return client

    async def leave(self, client: Client) -> None:
        """Disconnect it, unless it is disconnected."""
        if client in self._clients:
            self._clients.remove(client)
            await client.aclose()
            await trio.lowlevel.cancel_shielded_checkpoint()  # `async with client` takes this step too

    async def leave_all(self) -> None:
        """Disconnect every client, the last one first."""
        for client in reversed(self._clients.copy()):
            await self.leave(client)

    def present(self, client: Client) -> Client:
        """The same client, if it is connected."""
        if client not in self._clients:
            raise MisuseError("the client is closed; `net.client(name)` makes another one")
        return client


def stage_thread(
    task: Task,
    model: Mapping[str, npt.ArrayLike],
    seed: int,
    lane: ComputeLane | None,
    callers: Callers,
) -> LoopThread[Stage]:
    """The thread of a simulation.

    Args:
        task: what is learnt.
        model: by block, what both servers start from.
        seed: decides all randomness, and the order of everything that the calls leave open.
        lane: where to compute; inline unless told otherwise.
        callers: who may call.
    """
    reception: Pausing[Stage] = Pausing(OVER, callers)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Stage]:
        network = Network(task, model, seed, lane or InlineLane(), reception.somebody_may_call)
        async with running(network, seed), trio.open_nursery() as nursery:
            stage = Stage(network, nursery)
            yield stage
            await stage.leave_all()

    return LoopThread("fsl-async simulation", opening, reception, OVER)


class StagedClient:
    """Reaches one client of a simulation from another thread.

    Args:
        thread: the simulation's.
        client: a connected client.
    """

    def __init__(self, thread: LoopThread[Stage], client: Client) -> None:
        self._thread = thread
        self._client = client

    def call(self, work: Work[Client, ResultT], timeout: float = FOR_EVER) -> ResultT:
        """Have the client do something, and wait for it."""
        return self._thread.call(partial(self.on_stage, work), timeout)

    def close(self) -> None:
        """Disconnect the client, unless the simulation is over."""
        with suppress(MisuseError):
            self._thread.call(self.leave)

    async def leave(self, stage: Stage) -> None:
        """Disconnect it, in the simulation's thread."""
        await stage.leave(self._client)

    async def on_stage(self, work: Work[Client, ResultT], stage: Stage) -> ResultT:
        """Have the client do something, if it is connected."""
        return await work(stage.present(self._client))
