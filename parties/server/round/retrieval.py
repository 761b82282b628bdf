"""Retrievals answered: those that wait at the same time share a pass over the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import trio

from fsl_async.config import RoundConfig
from fsl_async.server.retrieval import PermutedModel, Query
from parties.compute import ComputeLane
from parties.outcome import Model
from parties.server.round.assembly import RequestRefusedError

__all__ = ["RetrievalBatcher"]

QUERIES_PER_PASS = 16
PASS_BYTES = 2**26
"""Bytes of the answers that one pass makes at most, unless one alone has more."""


@dataclass(eq=False)
class _Waiting:
    """A query, and where its answer goes; none comes where the round has ended first."""

    query: Query
    done: trio.Event = field(default_factory=trio.Event)
    answers: list[memoryview] = field(default_factory=list)


class RetrievalBatcher:
    """Answers one round's retrievals.

    Args:
        config: the round.
        server: 0 or 1.
        model: as the round retrieves it.
        lane: where to compute.
    """

    def __init__(self, config: RoundConfig, server: int, model: Model, lane: ComputeLane) -> None:
        self._make = partial(PermutedModel, config, server, model)
        self._lane = lane
        self._send, self._receive = trio.open_memory_channel[_Waiting](1024)
        self._shelves: PermutedModel | None = None

    async def answer(self, query: Query) -> memoryview:
        """Wait for the answer to one query.

        Raises:
            RequestRefusedError: the round has ended.
        """
        waiting = _Waiting(query)
        try:
            await self._send.send(waiting)
            await waiting.done.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            waiting.answers.clear()
        if not waiting.answers:
            raise RequestRefusedError.because("round-closed", "the round ended before the retrieval was answered")
        return waiting.answers[0]

    async def work(self) -> None:
        """Answer what waits, until cancelled; whoever waits then is told that the round has ended."""
        batch: list[_Waiting] = []
        try:
            async for first in self._receive:
                if self._shelves is None:
                    self._shelves = await self._lane.run(self._make)
                most = min(QUERIES_PER_PASS, max(1, PASS_BYTES // self._shelves.answer_bytes))
                batch = [first, *self._at_hand(most - 1)]
                answers = await self._pass(self._shelves, [waiting.query for waiting in batch])
                for waiting, answer in zip(batch, answers, strict=True):
                    waiting.answers.append(answer)
                    waiting.done.set()
        finally:
            for waiting in [*batch, *self._at_hand(self._receive.statistics().current_buffer_used)]:
                waiting.done.set()
            self._receive.close()
            self._shelves = None  # three times the model: whoever still has the round shall not have them

    def _at_hand(self, most: int) -> list[_Waiting]:
        waiting: list[_Waiting] = []
        while len(waiting) < most:
            try:
                waiting.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        return waiting

    async def _pass(self, shelves: PermutedModel, queries: list[Query]) -> list[memoryview]:
        expanded = []
        for query in queries:
            jobs, bits = await self._lane.run(partial(shelves.selection_jobs, query, self._lane.threads))
            await self._lane.run_all(jobs)
            expanded.append(bits)
        jobs, answers = await self._lane.run(partial(shelves.answer_jobs, expanded, self._lane.threads))
        await self._lane.run_all(jobs)
        if len(answers) == 1:
            return [answers[0].data.cast("B")]
        return [row.copy().data.cast("B") for row in answers]  # a client that reads slowly keeps its own alone
