"""Answers to retrievals: queries that wait at the same time share a pass over the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import trio

from fsl_async.config import RoundConfig
from fsl_async.errors import StorageError
from fsl_async.server.retrieval import PermutedModel, Query
from fsl_async.wire.public_part import Layout, Part
from parties.compute import ComputeLane
from parties.outcome import Model
from parties.server.replies import RequestRefusedError
from parties.server.round.records import RoundRecords
from parties.server.store_layout import RequestKey

QUERIES_PER_PASS = 16
PASS_BYTES = 2**26
"""The most bytes of answers that one pass makes, unless a single answer is longer."""

QueryT = TypeVar("QueryT")

Answered: TypeAlias = memoryview | StorageError
"""An answer, or why the query's trees cannot be read."""


@dataclass(frozen=True)
class Asked:
    """A retrieval that is to be answered.

    Attributes:
        client: whose it is.
        msk: this server's master seed.
        request: the request that brought its trees; None where they are those of the client's session.
        part: the digest of that request's public part; of a session, the digest of its trees.
        trees: a session's trees, where they are at hand.
    """

    client: str
    msk: bytes = field(repr=False)
    request: RequestKey | None
    part: bytes
    trees: Part | None = field(default=None, repr=False)


class Passes(ABC, Generic[QueryT]):
    """What passes over the model are made by."""

    @abstractmethod
    async def query(self, asked: Asked) -> QueryT:
        """What a pass needs of a retrieval; waits for trees that a restart has lost.

        Raises:
            StorageError: its trees cannot be read.
        """

    @abstractmethod
    async def begin(self) -> int:
        """Get ready for passes; the bytes of an answer."""

    @abstractmethod
    async def answer(self, queries: Sequence[QueryT]) -> Sequence[Answered]:
        """Answer some queries in one pass."""

    @abstractmethod
    def release(self) -> None:
        """Free what was got ready."""


@dataclass(eq=False)
class _Waiting(Generic[QueryT]):
    """A query and its answer; the answer stays None if the round ends first."""

    query: QueryT
    done: trio.Event = field(default_factory=trio.Event)
    answer: Answered | None = None


class RetrievalBatcher(Generic[QueryT]):
    """Answers one round's retrievals.

    Attributes:
        answered: how many queries have been answered, repeats included, since the server was started.
    """

    def __init__(self, passes: Passes[QueryT]) -> None:
        self.answered = 0
        self._passes = passes
        self._send, self._receive = trio.open_memory_channel[_Waiting[QueryT]](1024)

    async def answer(self, asked: Asked) -> memoryview:
        """Wait for the answer to one retrieval.

        Raises:
            RequestRefusedError: the round has ended.
            StorageError: the retrieval's trees cannot be read.
        """
        waiting = _Waiting(await self._passes.query(asked))
        try:
            await self._send.send(waiting)
            await waiting.done.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            waiting.answer = None
        if waiting.answer is None:
            raise RequestRefusedError.because("round-closed", "the round ended before the retrieval was answered")
        if isinstance(waiting.answer, StorageError):
            raise waiting.answer
        return waiting.answer

    async def work(self) -> None:
        """Answer queries until cancelled; those that still wait are refused then, because the round has ended."""
        batch: list[_Waiting[QueryT]] = []
        size: int | None = None
        try:
            async for first in self._receive:
                if size is None:
                    batch = [first]
                    size = await self._passes.begin()
                most = min(QUERIES_PER_PASS, max(1, PASS_BYTES // max(1, size)))
                batch = [first, *self._at_hand(most - 1)]
                answers = await self._passes.answer([waiting.query for waiting in batch])
                self.answered += len(answers)
                for waiting, answer in zip(batch, answers, strict=True):
                    waiting.answer = answer
                    waiting.done.set()
        finally:
            for waiting in [*batch, *self._at_hand(self._receive.statistics().current_buffer_used)]:
                waiting.done.set()
            self._receive.close()
            self._passes.release()

    def _at_hand(self, most: int) -> list[_Waiting[QueryT]]:
        waiting: list[_Waiting[QueryT]] = []
        while len(waiting) < most:
            try:
                waiting.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        return waiting


class PassesInProcess(Passes[Query]):
    """Passes over the model in this process.

    Args:
        config: the round.
        server: 0 or 1.
        model: as the round retrieves it.
        records: where the trees of retrievals lie.
        lane: where to compute.
    """

    def __init__(
        self, config: RoundConfig, server: int, model: Model, records: RoundRecords, lane: ComputeLane
    ) -> None:
        self._make = partial(PermutedModel, config, server, model)
        self._layout = Layout.retrieval(config.shape)
        self._records = records
        self._lane = lane
        self._permuted: PermutedModel | None = None

    async def begin(self) -> int:
        """See `Passes.begin`."""
        self._permuted = await self._lane.run(self._make)
        return self._permuted.answer_bytes

    async def query(self, asked: Asked) -> Query:
        """See `Passes.query`."""
        if asked.request is None:
            return Query(asked.msk, asked.trees or await self._records.session_trees(asked.client))
        return Query(asked.msk, Part(self._layout, await self._records.part(asked.request, asked.part)))

    async def answer(self, queries: Sequence[Query]) -> Sequence[Answered]:
        """See `Passes.answer`."""
        if self._permuted is None:
            self._permuted = await self._lane.run(self._make)
        work = await self._lane.run(partial(self._permuted.begin, queries, self._lane.threads))
        for jobs in (work.selecting, work.answering):
            await self._lane.run_all(jobs)
        return in_rows(await self._lane.run(work.finish))

    def release(self) -> None:
        """See `Passes.release`: three times the model must not live as long as references to the round."""
        self._permuted = None


def in_rows(answers: npt.NDArray[np.uint8]) -> list[memoryview]:
    """The answers of a pass one by one; copied, so that a slow reader keeps only its own alive."""
    if len(answers) == 1:
        return [answers[0].data.cast("B")]
    return [row.copy().data.cast("B") for row in answers]
