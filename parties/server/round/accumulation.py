"""The sum of a round as it grows: submissions are added one after the other, each with all threads.

Rule: only the client's name waits in the queue; its submission is read from the round's records when its turn comes and
released once it is added, so memory does not grow with the number of clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio

from fsl_async.errors import StorageError
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.wire.public_part import ALL_ROWS, Opened
from parties.compute import ComputeLane
from parties.concurrency import RecurringEvent

Fetch: TypeAlias = Callable[[str], Awaitable[Submission]]
Added: TypeAlias = Callable[[str, float], None]


class Accumulator:
    """Adds submissions to one round's sum.

    Args:
        make: makes the sum, at zero.
        fetch: reads a client's submission.
        lane: where to compute.
        on_added: called for each submission that is added, with the seconds that it took.
        over: set when the round is over: its records are erased then, and its tasks are about to be cancelled.

    Attributes:
        seconds: how long adding has taken so far.
    """

    def __init__(
        self, make: Callable[[], Aggregate], fetch: Fetch, lane: ComputeLane, on_added: Added, over: trio.Event
    ) -> None:
        self._make = make
        self._fetch = fetch
        self._lane = lane
        self._on_added = on_added
        self._over = over
        self._send, self._receive = trio.open_memory_channel[str](float("inf"))
        self._proofs: dict[str, bytes] = {}
        self._taken_out: set[str] = set()
        self._aggregate: Aggregate | None = None
        self._progress = RecurringEvent()
        self._busy = trio.Lock()
        self.seconds = 0.0

    @property
    def added(self) -> int:
        """How many submissions are in the sum."""
        return len(self._proofs)

    def put(self, client: str) -> None:
        """Queue a client's stored submission."""
        self._send.send_nowait(client)

    async def work(self) -> None:
        """Add queued submissions until cancelled."""
        async for client in self._receive:
            async with self._busy:
                started = trio.current_time()
                aggregate = await self._sum()
                self._proofs[client] = await self._add(aggregate, await self._submission(client))
                took = trio.current_time() - started
            self.seconds += took
            self._on_added(client, took)
            self._progress.set()

    async def proofs(self, roster: frozenset[str]) -> dict[str, bytes]:
        """Wait until everyone on the roster is added, and return their proof digests."""
        while not roster <= self._proofs.keys():
            await self._progress.wait()
        return {client: self._proofs[client] for client in sorted(roster)}

    async def counts(self, counted: frozenset[str]) -> bytes:
        """Wait until all counted clients are added, take out all others, and return this server's share of counts."""
        return await self._of(counted, Aggregate.counts)

    async def share(self, counted: frozenset[str], opened: Opened = ALL_ROWS) -> bytes:
        """The same of the sum, of the rows that are opened."""
        return await self._of(counted, partial(Aggregate.share, opened=opened))

    async def _of(self, counted: frozenset[str], read: Callable[[Aggregate], bytes]) -> bytes:
        await self.proofs(counted)
        async with self._busy:
            aggregate = await self._sum()
            unwanted = sorted(self._proofs.keys() - counted - self._taken_out)
            if unwanted:
                await self._lane.run(aggregate.negate)
                for client in unwanted:
                    await self._add(aggregate, await self._submission(client))
                    self._taken_out.add(client)
                await self._lane.run(aggregate.negate)
            return await self._lane.run(partial(read, aggregate))

    def release(self) -> None:
        """Free the sum's memory: the round is over, and nothing is computed any more."""
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

    async def _add(self, aggregate: Aggregate, submission: Submission) -> bytes:
        jobs, finish = await self._lane.run(partial(aggregate.jobs, submission, self._lane.threads))
        await self._lane.run_all(jobs)
        return await self._lane.run(finish)
