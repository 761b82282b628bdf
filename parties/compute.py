"""Where heavy computation runs: in threads when deployed, inline where a run must be reproducible.

Kernels release the interpreter lock, so threads use all cores. In simulation the virtual clock would jump while a
thread works, and the order of results would depend on the machine; there the lane computes inline.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import trio

__all__ = ["ComputeLane", "InlineLane", "ThreadLane"]

ResultT = TypeVar("ResultT")


class ComputeLane(ABC):
    """Runs pure functions: where a party's heavy computation goes.

    Attributes:
        threads: how many functions it runs at a time.
    """

    threads: int

    @abstractmethod
    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run one function and return what it returns."""

    @abstractmethod
    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """Run several functions, as many at a time as there are threads."""


class InlineLane(ComputeLane):
    """Computes in the calling task, with a checkpoint before each piece.

    For simulations: the order of what happens then depends on the seed alone.
    """

    threads = 1

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run`."""
        await trio.lowlevel.checkpoint()
        return work()

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """See `ComputeLane.run_all`."""
        for piece in work:
            await self.run(piece)


class ThreadLane(ComputeLane):
    """Computes in threads, which share nothing with other lanes.

    Args:
        threads: how many at a time; None stands for as many as the process may use cores.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self._limiter = trio.CapacityLimiter(self.threads)

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run`."""
        return await trio.to_thread.run_sync(work, limiter=self._limiter)

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """See `ComputeLane.run_all`."""
        async with trio.open_nursery() as nursery:
            for piece in work:
                nursery.start_soon(self.run, piece)
