"""A simulation in a thread of its own, for programs that are not on trio: its network, and the clients on it.

The loop stands still while no call is under way, so other threads see what a trio program would see.

In a trio program nothing happens while the program computes between two awaits. Here the loop's thread waits for the
next call in the middle of the loop's main task, and carries it out there: the simulation takes the same steps as if the
main task had made the call itself, and one seed gives one transcript, whatever the time between calls.

Calls that come while others are under way, from other threads or from other tasks of an asyncio loop, get tasks of
their own; when they come is up to those threads, and so is the order of messages.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import numpy.typing as npt
import trio

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.client.client import Client
from parties.compute import ComputeLane, InlineLane
from parties.concurrency import RecurringEvent
from parties.simulation.network import Network, running
from parties.threads import FOR_EVER, Call, CallQueue, LoopThread, ResultT, Work

HostT = TypeVar("HostT")


class Callers(ABC):
    """Those who may call: threads, or tasks of an asyncio loop."""

    @abstractmethod
    def note(self, caller: object) -> None:
        """Somebody calls."""

    @abstractmethod
    def others(self, waiting: frozenset[object]) -> bool:
        """Whether anybody else may still call, beside those who wait for a call."""


class Pausing(CallQueue[HostT]):
    """Carries calls out in a loop that stands still between them.

    Args:
        closed: what to say to whoever calls after the close.
        callers: who may call.
    """

    def __init__(self, closed: str, callers: Callers) -> None:
        self._closed = closed
        self._callers = callers
        self._lock = threading.RLock()  # what is dropped while it is held may call `close`
        self._open: set[Call[HostT, Any]] = set()
        self._is_closed = False
        self._next: queue.SimpleQueue[Call[HostT, Any] | None] = queue.SimpleQueue()
        self._changed = RecurringEvent()
        self._start: Callable[[Call[HostT, Any]], None] = self._refuse

    def somebody_may_call(self) -> bool:
        """Whether anybody may still call, beside those who wait for a call."""
        with self._lock:
            return self._callers.others(frozenset(call.caller for call in self._open))

    def post(self, call: Call[HostT, Any], loop: trio.lowlevel.TrioToken) -> None:
        """See `CallQueue.post`."""
        with self._lock:
            if self._is_closed:
                raise trio.RunFinishedError
            self._callers.note(call.caller)
            alone = not self._open
            self._open.add(call)
            if alone:
                self._next.put(call)
            else:  # before anybody is told that its caller waits
                loop.run_sync_soon(self._take, call)

    def close(self, loop: trio.lowlevel.TrioToken, end: Callable[[], None]) -> None:
        """See `CallQueue.close`."""
        with self._lock:
            self._is_closed = True
            self._next.put(None)  # for a loop that stands still
        loop.run_sync_soon(end)

    async def serve(self, host: HostT) -> None:
        """See `CallQueue.serve`."""
        try:
            async with trio.open_nursery() as nursery:
                self._start = lambda call: nursery.start_soon(self._carry_out, call, host)
                while call := self._next.get():  # everything stands still until there is one
                    await self._carry_out(call, host)
                    while self._only_others_are_open():
                        await self._changed.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._start = self._refuse
            while not self._next.empty():
                if call := self._next.get():
                    self._refuse(call)

    def _only_others_are_open(self) -> bool:
        """Whether calls are under way in tasks of their own, and the next one would get such a task too."""
        with self._lock:
            return self._next.empty() and bool(self._open)

    async def _carry_out(self, call: Call[HostT, Any], host: HostT) -> None:
        await call.carry_out(host, lambda: self._note_end(call))

    def _note_end(self, call: Call[HostT, Any]) -> None:
        with self._lock:
            self._open.discard(call)
        self._changed.set()

    def _take(self, call: Call[HostT, Any]) -> None:
        self._start(call)

    def _refuse(self, call: Call[HostT, Any]) -> None:
        self._note_end(call)
        call.refuse(MisuseError(self._closed))


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
    **rule: Any,
) -> LoopThread[Stage]:
    """The thread of a simulation; arguments are those of `simulate`, who may call, and the rule of a `Network`."""
    calls: Pausing[Stage] = Pausing(OVER, callers)

    @asynccontextmanager
    async def opening() -> AsyncIterator[Stage]:
        network = Network(task, model, seed, lane or InlineLane(), calls.somebody_may_call, **rule)
        async with running(network, seed), trio.open_nursery() as nursery:
            stage = Stage(network, nursery)
            yield stage
            await stage.leave_all()

    return LoopThread("fsl-async simulation", opening, calls, OVER)


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
