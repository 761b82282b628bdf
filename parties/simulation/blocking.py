"""A simulation for programs that are not async: scripts, notebooks, tests without a plugin, other event loops."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.task import Task
from parties.client.blocking import BlockingClient
from parties.compute import ComputeLane
from parties.docstrings import documented_by
from parties.outcome import RoundOutcome
from parties.simulation.network import Network
from parties.simulation.stage import Callers, Stage, StagedClient, stage_thread
from parties.threads import FOR_EVER, Blocking, ResultT, Work
from parties.watch import Note


@documented_by(Network, awaited=False)
class BlockingNetwork(Blocking[Stage]):
    """A running simulation whose calls block; see `Network` for what they do and raise.

    Calls of one thread give the transcript that the same calls give under trio. Calls of several threads are carried
    out as they come, so their order, and with it the transcript, is up to those threads.

    Attributes:
        task: what is learnt.
    """

    def __init__(
        self, task: Task, model: Mapping[str, npt.ArrayLike], seed: int, lane: ComputeLane | None = None, **rule: Any
    ) -> None:
        self._thread = stage_thread(task, model, seed, lane, _Threads(), **rule)
        super().__init__(
            self._thread,
            "parties.simulate_blocking is entered with `with`; `async with` is for parties.simulate under trio, and "
            "for parties.aio.simulate on an asyncio loop",
        )
        self.task = task
        self._thread.start()
        weakref.finalize(self, self._thread.close)

    def client(self, name: str, *, timeout: float = FOR_EVER) -> BlockingClient:
        """A client of that name, registered with both servers and connected."""
        client = self._thread.call(lambda stage: stage.enter(name), timeout)
        return BlockingClient(StagedClient(self._thread, client))

    def draw(self, *, timeout: float = FOR_EVER) -> int:
        """See `Network.draw`."""
        return self._thread.call(lambda stage: stage.network.draw(), timeout)

    def finish_round(self, *, timeout: float = FOR_EVER) -> RoundOutcome:
        """See `Network.finish_round`."""
        return self._thread.call(lambda stage: stage.network.finish_round(), timeout)

    def finish_union(self, *, timeout: float = FOR_EVER) -> dict[str, npt.NDArray[np.uint32]]:
        """See `Network.finish_union`."""
        return self._thread.call(lambda stage: stage.network.finish_union(), timeout)

    def carry_out(self, work: Work[Stage, ResultT]) -> ResultT:
        """Have something done in the simulation's thread, by its network and its clients."""
        return self._thread.call(work)

    @property
    def model(self) -> dict[str, npt.NDArray[Any]]:
        """The model as the servers hold it now."""
        return self._read(lambda stage: stage.network.model)

    @property
    def rule_state(self) -> dict[str, npt.NDArray[Any]]:
        """See `Network.rule_state`."""
        return self._read(lambda stage: stage.network.rule_state)

    @property
    def transcript(self) -> list[Note]:
        """Every message so far, in order."""
        return self._read(lambda stage: list(stage.network.transcript))

    def transcript_digest(self) -> str:
        """See `Network.transcript_digest`."""
        return self._read(lambda stage: stage.network.transcript_digest())


def simulate_blocking(
    task: Task, model: Mapping[str, npt.ArrayLike], seed: int, lane: ComputeLane | None = None
) -> BlockingNetwork:
    """Run S0 and S1 in memory for a program that is not async, and make clients on demand.

        with simulate_blocking(task, {"items": np.zeros((10_000, 8))}, seed=7) as net:
            with net.client("alice") as alice:
                rows = alice.retrieve({"items": [3, 14]})
                alice.submit({"items": ([3, 14], rows["items"] + 1)})
            outcome = net.finish_round()      # a `RoundOutcome`

    The parties live in a thread of their own, which stands still between calls: the same seed and the same calls give
    the same transcript as with `simulate`. It works in scripts, threads and notebooks, and beside any running loop,
    which a call blocks for as long as it takes.

    Args:
        task: what is learnt.
        model: by block, what both servers start from.
        seed: decides all randomness and all scheduling.
        lane: where to compute; inline unless told otherwise (threads make a run faster and no longer reproducible).

    Raises:
        MisuseError: the model does not fit the task.
    """
    return BlockingNetwork(task, model, seed, lane)


class _Threads(Callers):
    """Threads may call for as long as they live: all but those of a service (daemons) that have never called."""

    def __init__(self) -> None:
        self._known = {threading.current_thread()}

    def note(self, caller: object) -> None:
        """See `Callers.note`."""
        self._known = {thread for thread in (*self._known, threading.current_thread()) if thread.is_alive()}

    def others(self, waiting: frozenset[object]) -> bool:
        """See `Callers.others`."""
        living = {thread for thread in threading.enumerate() if not thread.daemon or thread in self._known}
        return bool(living - waiting)
