"""The sum of a round as it grows: submissions that wait are added together, with all threads, and one alone at once.

Rule: only the client's name waits in the queue; its submission is read from the round's records when its turn is near
and released once it is added. While a batch is added, at most as many submissions as a batch may have are read for the
next one, so memory does not grow with the number of clients. Where a batch is a single submission, which is large or
takes long, none is read ahead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from fsl_async.errors import StorageError
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.server.batch import BATCHES, at_once
from fsl_async.server.sums import CellMemory
from parties.compute import ComputeLane
from parties.concurrency import RecurringEvent
from parties.outcome import Model
from parties.server.round.engine import Added, Engine, Fetch, RoundStart, RoundSum, RoundWork
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import PassesInProcess, RetrievalBatcher

READERS = 8
"""Submissions that are read side by side: what stores them may be slow to begin, and quick when several wait."""


class Accumulator(RoundSum):
    """Adds submissions to one round's sum.

    Args:
        make: makes the sum, at zero.
        fetch: reads a client's submission.
        lane: where to compute.
        most: how many submissions are added at once; see `fsl_async.server.batch`.
        on_added: called for each submission that is added, with its part of the seconds that its batch took.
        over: set when the round is over: its records are erased then, and its tasks are about to be cancelled.

    Attributes:
        seconds: how long adding has taken so far.
    """

    def __init__(
        self,
        make: Callable[[], Aggregate],
        fetch: Fetch,
        lane: ComputeLane,
        most: int,
        on_added: Added,
        over: trio.Event,
    ) -> None:
        self._make = make
        self._fetch = fetch
        self._lane = lane
        self._most = most
        self._on_added = on_added
        self._over = over
        self._send, self._receive = trio.open_memory_channel[str](float("inf"))
        self._room = trio.Semaphore(BATCHES * most if most > 1 else 1)
        self._read: list[Submission] = []
        self._arrival = RecurringEvent()
        self._proofs: dict[str, bytes] = {}
        self._taken_out: set[str] = set()
        self._aggregate: Aggregate | None = None
        self._progress = RecurringEvent()
        self._busy = trio.Lock()
        self._released = False
        self.seconds = 0.0

    @property
    def added(self) -> int:
        """See `RoundSum.added`."""
        return len(self._proofs)

    def put(self, client: str) -> None:
        """See `RoundSum.put`: it waits in a queue."""
        self._send.send_nowait(client)

    async def work(self) -> None:
        """See `RoundSum.work`."""
        async with trio.open_nursery() as nursery:
            for _ in range(min(READERS, self._most)):
                nursery.start_soon(self._read_ahead)
            while True:
                while not self._read:
                    await self._arrival.wait()
                batch, self._read = self._read[: self._most], self._read[self._most :]
                await self._take(batch)
                for _ in batch:
                    self._room.release()

    async def proofs(self, roster: frozenset[str]) -> dict[str, bytes]:
        """See `RoundSum.proofs`."""
        clients = sorted(roster)
        for client in clients:  # one after the other: to look for all of them whenever some are added takes long
            while client not in self._proofs:
                await self._progress.wait()
        return {client: self._proofs[client] for client in clients}

    @asynccontextmanager
    async def settled(self, counted: frozenset[str]) -> AsyncIterator[Aggregate]:
        """See `RoundSum.settled`."""
        await self.proofs(counted)
        async with self._busy:
            yield await self._exactly(counted)

    async def _exactly(self, counted: frozenset[str]) -> Aggregate:
        """The sum once all others are taken out."""
        aggregate = await self._sum()
        unwanted = sorted(self._proofs.keys() - counted - self._taken_out)
        if unwanted:
            await self._lane.run(aggregate.negate)
            for first in range(0, len(unwanted), self._most):
                some = unwanted[first : first + self._most]
                await add_batch(aggregate, [await self._submission(client) for client in some], self._lane)
                self._taken_out.update(some)
            await self._lane.run(aggregate.negate)
        return aggregate

    def release(self) -> None:
        """See `RoundSum.release`."""
        self._released = True
        if self._aggregate is not None:
            self._aggregate.release()
            self._aggregate = None

    async def _submission(self, client: str) -> Submission:
        try:
            return await self._fetch(client)
        except StorageError:
            if not self._over.is_set():
                raise
            await trio.sleep_forever()  # its result is not needed any more

    async def _sum(self) -> Aggregate:
        if self._aggregate is None:
            self._aggregate = await self._lane.run(self._make)
        return self._aggregate

    async def _read_ahead(self) -> None:
        """Read queued submissions, as long as there is room for them."""
        while True:
            await self._room.acquire()
            submission = await self._submission(await self._receive.receive())
            self._read.append(submission)
            self._arrival.set()

    async def _take(self, batch: Sequence[Submission]) -> None:
        async with self._busy:
            if self._released:
                return
            started = trio.current_time()
            entries = await add_batch(await self._sum(), batch, self._lane)
            took = trio.current_time() - started
            self._proofs.update(zip((submission.client for submission in batch), entries, strict=True))
        self.seconds += took
        for submission in batch:
            self._on_added(submission.client, took / len(batch))
        self._progress.set()


async def add_batch(aggregate: Aggregate, submissions: Sequence[Submission], lane: ComputeLane) -> list[bytes]:
    """Add submissions to a sum at once, with all threads of a lane, and return their entries."""
    batch = aggregate.batch(submissions, lane.threads)
    for step in (batch.preparing, batch.adding, batch.concluding):
        await lane.run_all(step())
    return batch.entries


SPARE_BYTES = 256 << 20
"""Memory of one round's sum that is kept for the next one's, at most."""


class InProcess(Engine):
    """Computes with the threads of one lane."""

    def __init__(self, lane: ComputeLane) -> None:
        self._lane = lane
        self._memory = CellMemory(SPARE_BYTES)

    def sum(self, work: RoundWork) -> RoundSum:
        """See `Engine.sum`."""
        start = work.start
        make = partial(Aggregate, start.config, start.server, start.proof_key, start.union, self._memory)
        most = at_once(start.config.shape, self._lane.threads)
        return Accumulator(make, work.fetch, self._lane, most, work.on_added, work.over)

    def answers(self, start: RoundStart, model: Model, records: RoundRecords) -> RetrievalBatcher[Any]:
        """See `Engine.answers`."""
        return RetrievalBatcher(PassesInProcess(start.config, start.server, model, records, self._lane))
