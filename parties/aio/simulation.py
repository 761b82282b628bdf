"""A simulation on an asyncio loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.aio import front
from parties.aio.client import Client, Standing
from parties.aio.front import Front, Opening
from parties.client import client as under_trio
from parties.compute import ComputeLane
from parties.docstrings import documented_by
from parties.outcome import RoundOutcome
from parties.simulation import network
from parties.simulation.stage import Callers, Stage, StagedClient, stage_thread
from parties.threads import Call, LoopThread, Work
from parties.watch import Note

ResultT = TypeVar("ResultT")
SIMULATE = Front("parties.aio.simulate", trio="parties.simulate", blocking="parties.simulate_blocking")
CLIENT = Front("net.client", trio="net.client", blocking="net.client")


@documented_by(network.Network)
class Network:
    """A running simulation whose calls are awaited on an asyncio loop; see `parties.Network` for what they do.

    Calls that one task makes one after the other give the transcript that they give under trio. Calls that are made at
    the same time are carried out as they come, and the order of messages is up to the loop.

    Attributes:
        task: what is learnt.
    """

    def __init__(self, task: Task, thread: LoopThread[Stage]) -> None:
        self.task = task
        self._thread = thread
        weakref.finalize(self, thread.close)

    def client(self, name: str) -> Opening[Client]:
        """A client of that name, registered with both servers; `async with` connects it."""
        return Opening(CLIENT, partial(self._enter, name))

    async def draw(self) -> int:
        """See `parties.Network.draw`."""
        return await front.call(self._thread, lambda stage: stage.network.draw())

    async def finish_round(self) -> RoundOutcome:
        """See `parties.Network.finish_round`."""
        return await front.call(self._thread, lambda stage: stage.network.finish_round())

    async def finish_union(self) -> dict[str, npt.NDArray[np.uint32]]:
        """See `parties.Network.finish_union`."""
        return await front.call(self._thread, lambda stage: stage.network.finish_union())

    @property
    def model(self) -> dict[str, npt.NDArray[Any]]:
        """The model as the servers hold it now."""
        return self._read(lambda stage: stage.network.model)

    @property
    def transcript(self) -> list[Note]:
        """Every message so far, in order."""
        return self._read(lambda stage: list(stage.network.transcript))

    def transcript_digest(self) -> str:
        """See `parties.Network.transcript_digest`."""
        return self._read(lambda stage: stage.network.transcript_digest())

    async def aclose(self) -> None:
        """Disconnect every client, and end the simulation and its thread; a second time does nothing."""
        await front.ended(self._thread)

    def forsake(self) -> None:
        """Close it in a task that was dropped with its loop; everywhere else, `aclose`."""
        self._thread.close()

    async def _enter(self, name: str) -> Client:
        entered = await front.call(self._thread, lambda stage: stage.enter(name))
        return Client(_OnStage(self._thread, StagedClient(self._thread, entered)), Standing.of(entered))

    def _read(self, look: Callable[[Stage], ResultT]) -> ResultT:
        async def work(stage: Stage) -> ResultT:
            return look(stage)

        return self._thread.call(work)


def simulate(
    task: Task, model: Mapping[str, npt.ArrayLike], seed: int, lane: ComputeLane | None = None
) -> Opening[Network]:
    """Run S0 and S1 in memory for a program on asyncio, and make clients on demand.

        async with parties.aio.simulate(task, {"items": np.zeros((10_000, 8))}, seed=7) as net:
            async with net.client("alice") as alice:
                rows = await alice.retrieve({"items": [3, 14]})
                await alice.submit({"items": ([3, 14], rows["items"] + 1)})
            outcome = await net.finish_round()      # a `RoundOutcome`

    The parties live in a thread of their own, which stands still between calls. In a notebook, where a simulation
    outlives its cell, `net = await parties.aio.simulate(...)`, `alice = await net.client("alice")`, and in the end
    `await net.aclose()`.

    Args:
        task: what is learnt.
        model: by block, what both servers start from.
        seed: decides all randomness, and the order of everything that the calls leave open.
        lane: where to compute; in the simulation's thread unless told otherwise.

    Raises:
        MisuseError: the model does not fit the task, or no asyncio loop runs here.
    """

    async def make() -> Network:
        callers = _Tasks(asyncio.get_running_loop())
        return Network(task, await front.started(stage_thread(task, model, seed, lane, callers)))

    return Opening(SIMULATE, make)


class _OnStage:
    """Reaches one client of a simulation from an asyncio loop."""

    def __init__(self, thread: LoopThread[Stage], client: StagedClient) -> None:
        self._thread = thread
        self._client = client

    async def call(self, work: Work[under_trio.Client, ResultT]) -> ResultT:
        return await front.call(self._thread, partial(self._client.on_stage, work))

    async def aclose(self) -> None:
        with suppress(MisuseError):  # the simulation is over
            await front.call(self._thread, self._client.leave)

    def forsake(self) -> None:
        with suppress(MisuseError):
            self._thread.post(Call(self._client.leave))


class _Tasks(Callers):
    """Any task of the loops that have called may call, unless it waits for a call itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loops = {loop}

    def note(self, caller: object) -> None:
        """See `Callers.note`."""
        with suppress(RuntimeError):  # what is read needs no loop
            self._loops = {loop for loop in (*self._loops, asyncio.get_running_loop()) if not loop.is_closed()}

    def others(self, waiting: frozenset[object]) -> bool:
        """See `Callers.others`."""
        open_loops = [loop for loop in self._loops if not loop.is_closed()]
        return any(id(task) not in waiting for loop in open_loops for task in asyncio.all_tasks(loop))
