"""Where heavy computation runs: in threads when deployed, inline where a run must be reproducible.

Kernels release the interpreter lock, so threads use all cores. In simulation the virtual clock would jump while a
thread works, and the order of results would depend on the machine; there the lane computes inline.
"""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from weakref import WeakSet

import trio

from parties.compiling import watched
from parties.docstrings import documented_by

ResultT = TypeVar("ResultT")

FEW_BYTES: Final = 2**17
"""Bytes that are digested in less time than it takes to wake a thread and to be woken by it: 0.03 ms."""


class ComputeLane(ABC):
    """Runs pure functions: where a party's heavy computation goes.

    Attributes:
        threads: how many functions it runs at a time.
    """

    threads: int

    @abstractmethod
    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Run one function and return what it returns."""

    async def run_over(self, size: int, work: Callable[[], ResultT]) -> ResultT:
        """Run a function that reads so many bytes once: few of them at once, before a thread would have begun."""
        return watched(work) if size <= FEW_BYTES else await self.run(work)

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """Run several functions, as many at a time as there are threads."""
        async with trio.open_nursery() as nursery:
            for piece in work:
                nursery.start_soon(self.run, piece)

    async def run_each(self, work: Sequence[Callable[[], ResultT]]) -> list[ResultT]:
        """The same, and return what each function returns, in order."""
        results: dict[int, ResultT] = {}

        def keep(place: int) -> None:
            results[place] = work[place]()

        await self.run_all([partial(keep, place) for place in range(len(work))])
        return [results[place] for place in range(len(work))]


@documented_by(ComputeLane)
class InlineLane(ComputeLane):
    """Computes in the calling task, with a checkpoint before each piece.

    For simulations: the order of what happens then depends on the seed alone.
    """

    threads = 1

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run`."""
        await trio.lowlevel.checkpoint()
        return watched(work)

    async def run_over(self, size: int, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run_over`."""
        return await self.run(work)

    async def run_all(self, work: Sequence[Callable[[], None]]) -> None:
        """See `ComputeLane.run_all`."""
        for piece in work:
            await self.run(piece)


@documented_by(ComputeLane)
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
        return await trio.to_thread.run_sync(watched, work, limiter=self._limiter)


class SharedThreads:
    """Threads for several lanes: a thread that is free goes to the lane that has the fewest.

    So work that one lane brings at once does not keep another lane waiting for longer than a piece of it takes.

        threads = SharedThreads()
        shop, town = threads.lane(), threads.lane()

    Args:
        threads: how many; None stands for as many as the process may use cores.
    """

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or len(os.sched_getaffinity(0))
        self._limiter = trio.CapacityLimiter(self.threads)
        self._free = self.threads
        self._lanes: WeakSet[_SharedLane] = WeakSet()
        self._turns = itertools.count(1)

    def lane(self) -> ComputeLane:
        """A lane that has its share of the threads."""
        lane = _SharedLane(self)
        self._lanes.add(lane)
        return lane

    async def run(self, lane: _SharedLane, work: Callable[[], ResultT]) -> ResultT:
        """Run one function of a lane when it is the lane's turn."""
        await self._take(lane)
        try:
            return await trio.to_thread.run_sync(watched, work, limiter=self._limiter)
        finally:
            self._release(lane)

    async def _take(self, lane: _SharedLane) -> None:
        granted = trio.Event()
        lane.queue.append(granted)
        self._grant()
        try:
            await granted.wait()
        except trio.Cancelled:
            if granted.is_set():
                self._release(lane)
            else:
                lane.queue.remove(granted)
            raise

    def _release(self, lane: _SharedLane) -> None:
        lane.running -= 1
        self._free += 1
        self._grant()

    def _grant(self) -> None:
        while self._free and (waiting := [lane for lane in self._lanes if lane.queue]):
            lane = min(waiting, key=lambda one: (one.running, one.turn))
            lane.queue.popleft().set()
            lane.running += 1
            lane.turn = next(self._turns)
            self._free -= 1


class _SharedLane(ComputeLane):
    """One of several lanes that share threads.

    Attributes:
        running: how many threads it has now.
        turn: when it was given one last.
        queue: what waits for a thread.
    """

    def __init__(self, shared: SharedThreads) -> None:
        self.threads = shared.threads
        self.running = 0
        self.turn = 0
        self.queue: deque[trio.Event] = deque()
        self._shared = shared

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """See `ComputeLane.run`."""
        return await self._shared.run(self, work)
