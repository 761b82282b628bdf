"""Answers to retrievals: queries that wait at the same time share a pass over the model."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import trio

from fsl_async.config import RoundConfig
from fsl_async.server.retrieval import PermutedModel, Query
from parties.compute import ComputeLane
from parties.outcome import Model
from parties.server.refusals import RequestRefusedError
from parties.server.round.engine import Answers

QUERIES_PER_PASS = 16
PASS_BYTES = 2**26
"""The most bytes of answers that one pass makes, unless a single answer is longer."""


@dataclass(eq=False)
class _Waiting:
    """A query and its answer; the answer stays None if the round ends first."""

    query: Query
    done: trio.Event = field(default_factory=trio.Event)
    answer: memoryview | None = None


class RetrievalBatcher(Answers):
    """Answers one round's retrievals.

    Args:
        config: the round.
        server: 0 or 1.
        model: as the round retrieves it.
        lane: where to compute.

    Attributes:
        answered: how many queries have been answered, repeats included, since the server was started.
    """

    def __init__(self, config: RoundConfig, server: int, model: Model, lane: ComputeLane) -> None:
        self.answered = 0
        self._make = partial(PermutedModel, config, server, model)
        self._lane = lane
        self._send, self._receive = trio.open_memory_channel[_Waiting](1024)
        self._permuted: PermutedModel | None = None

    async def answer(self, query: Query) -> memoryview:
        """See `Answers.answer`."""
        waiting = _Waiting(query)
        try:
            await self._send.send(waiting)
            await waiting.done.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            waiting.answer = None
        if waiting.answer is None:
            raise RequestRefusedError.because("round-closed", "the round ended before the retrieval was answered")
        return waiting.answer

    async def work(self) -> None:
        """See `Answers.work`."""
        batch: list[_Waiting] = []
        try:
            async for first in self._receive:
                if self._permuted is None:
                    self._permuted = await self._lane.run(self._make)
                most = min(QUERIES_PER_PASS, max(1, PASS_BYTES // self._permuted.answer_bytes))
                batch = [first, *self._at_hand(most - 1)]
                answers = await self._pass(self._permuted, [waiting.query for waiting in batch])
                self.answered += len(answers)
                for waiting, answer in zip(batch, answers, strict=True):
                    waiting.answer = answer
                    waiting.done.set()
        finally:
            for waiting in [*batch, *self._at_hand(self._receive.statistics().current_buffer_used)]:
                waiting.done.set()
            self._receive.close()
            self._permuted = None  # three times the model, which must not live as long as references to the round

    def _at_hand(self, most: int) -> list[_Waiting]:
        waiting: list[_Waiting] = []
        while len(waiting) < most:
            try:
                waiting.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        return waiting

    async def _pass(self, permuted: PermutedModel, queries: list[Query]) -> list[memoryview]:
        work = await self._lane.run(partial(permuted.begin, queries, self._lane.threads))
        for jobs in (work.selecting, work.answering):
            await self._lane.run_all(jobs)
        answers = await self._lane.run(work.finish)
        if len(answers) == 1:
            return [answers[0].data.cast("B")]
        return [row.copy().data.cast("B") for row in answers]  # so that a slow reader keeps only its own row alive
