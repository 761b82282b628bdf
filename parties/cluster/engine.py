"""The engine that has workers of a cluster add submissions; what they add up to is checked and merged here.

For passes over the model every slice of it is pinned to a worker. A slice of a worker that is lost, fails or takes too
long is pinned to another one, which lays it out anew; a pass waits for that, and its queries are answered once in any
case. A pass names queries; workers read their trees themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import trio

from fsl_async import kernels
from fsl_async.errors import MisuseError, StorageError
from fsl_async.foreign_text import printable
from fsl_async.kernels.simd.isa import PLAIN
from fsl_async.protocols.partials import Settled, Worker
from fsl_async.randomness import Randomness
from fsl_async.server.retrieval import joined, layout_of
from fsl_async.server.slicing import Slice, even_slices
from fsl_async.wire.answer import AnswerLayout
from parties.cluster.cluster import Cluster, Reply, WorkerLostError
from parties.cluster.laying_out import LayingOut
from parties.cluster.orders import AnsweredReport, AnswerOrder, Brief, ModelBlock, StoredQuery, decoded, sealed
from parties.cluster.partial_sum import ClusterSum, Pace
from parties.cluster.worker_pool import PooledWorker, WorkerPool
from parties.compute import ComputeLane
from parties.events import Observer
from parties.outcome import Model
from parties.server.round.engine import Engine, RoundStart, RoundSum, RoundWork
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import Answered, Asked, Passes, PassesInProcess, RetrievalBatcher, in_rows
from parties.status import EngineStatus, WorkerStatus

SHARE_OF_MEMORY = 0.25
"""What the tables of a slice may take of a worker's memory; half of it is for the cells of a sum."""

MOST_SLICES = 64


@dataclass(frozen=True)
class _Laid:
    """A model that is laid out: what every order says, and the slices."""

    brief: Brief
    model: tuple[ModelBlock, ...]
    slices: tuple[Slice, ...]
    row_bytes: dict[int, int]


class PassesOnWorkers(Passes[StoredQuery]):
    """Passes over the model of one round.

    Args:
        start: what the round began with.
        model: as the round retrieves it.
        records: where its blobs are.
        pool: the workers.
        lane: where answers are joined, in this process.
        brief: which round it is, for workers; its number of slices is not yet known.
        patience: seconds after which a worker that does not answer is asked no more.
    """

    def __init__(
        self,
        start: RoundStart,
        model: Model,
        records: RoundRecords,
        pool: WorkerPool,
        lane: ComputeLane,
        brief: Brief,
        patience: float,
    ) -> None:
        self._config = start.config
        self._model = model
        self._records = records
        self._pool = pool
        self._lane = lane
        self._brief = brief
        self._patience = patience
        self._laying = LayingOut(start.config, records)
        self._laid: _Laid | None = None
        self._pins: dict[int, str] = {}

    async def query(self, asked: Asked) -> StoredQuery:
        """See `Passes.query`."""
        if asked.request is not None:
            await self._records.part(asked.request, asked.part)  # a part that a restart has lost is waited for
            return StoredQuery(client=asked.client, msk=asked.msk, query=asked.request.query, part=asked.part)
        trees = asked.trees or await self._records.session_trees(asked.client)
        place = await self._laying.session(asked.client, trees)
        return StoredQuery(client=asked.client, msk=asked.msk, query=0, part=asked.part, session=place)

    async def begin(self) -> int:
        """See `Passes.begin`: the model lies where workers read it, in as many slices as there are workers."""
        model = await self._laying.model(self._model)
        await self._pool.wait_for_hands()
        shape = self._config.shape
        row_bytes = {index: block.row_bytes for (index, _), block in zip(shape.sparse_blocks(), model, strict=True)}
        slices = even_slices(shape, self._slices(model))
        brief = msgspec.structs.replace(self._brief, slices=len(slices))
        self._laid = _Laid(brief, model, slices, row_bytes)
        return AnswerLayout.of(shape, row_bytes).size

    async def answer(self, queries: Sequence[StoredQuery]) -> Sequence[Answered]:
        """See `Passes.answer`."""
        laid = self._laid
        if laid is None:
            raise MisuseError("passes over a model that is not laid out")
        damaged: dict[int, str] = {}
        while left := [place for place in range(len(queries)) if place not in damaged]:
            parts = await self._parts(laid, [queries[place] for place in left])
            found = {left[place]: why for report, _ in parts for place, why in report.damaged.items()}
            if not found:
                break
            damaged |= found  # by one slice's worker perhaps: the others have answered in vain
        rows: Iterator[memoryview] = iter(())
        if left:
            cut = [(some, answers) for some, (_, answers) in zip(laid.slices, parts, strict=True)]
            rows = iter(in_rows(await self._lane.run(partial(joined, self._config.shape, laid.row_bytes, cut))))
        return [StorageError(damaged[place]) if place in damaged else next(rows) for place in range(len(queries))]

    def release(self) -> None:
        """See `Passes.release`: workers forget the model when they hear of the next round."""
        self._laid = None

    # ---- slices

    def _slices(self, model: Sequence[ModelBlock]) -> int:
        """One for each worker, and as many as it takes for their memory."""
        workers = self._pool.workers.values()
        tables = 3 * sum(block.rows * block.row_bytes for block in model)
        known = [pooled.memory for pooled in workers if pooled.memory]
        needed = -(-tables // max(1, int(min(known) * SHARE_OF_MEMORY))) if known else 1
        return max(1, min(MOST_SLICES, max(needed, len(workers))))

    async def _parts(
        self, laid: _Laid, queries: Sequence[StoredQuery]
    ) -> list[tuple[AnsweredReport, npt.NDArray[np.uint8]]]:
        """What every slice answers."""
        parts: dict[int, tuple[AnsweredReport, npt.NDArray[np.uint8]]] = {}

        async def ask(number: int) -> None:
            parts[number] = await self._part(laid, number, queries)

        async with trio.open_nursery() as nursery:
            for number in range(len(laid.slices)):
                nursery.start_soon(ask, number)
        return [parts[number] for number in range(len(laid.slices))]

    async def _part(
        self, laid: _Laid, number: int, queries: Sequence[StoredQuery]
    ) -> tuple[AnsweredReport, npt.NDArray[np.uint8]]:
        """What one slice answers, as soon as some worker does."""
        order = AnswerOrder(brief=laid.brief, slice=number, model=laid.model, queries=tuple(queries))
        while True:
            await self._pool.wait_for_hands()
            pooled = self._pinned(number)
            try:
                with trio.fail_after(self._patience):
                    reply = await self._pool.cluster.call(pooled.name, "answer", sealed(order, pooled.key))
                    size = layout_of(self._config.shape, laid.row_bytes, laid.slices[number]).size
                    return _checked(reply, len(queries), size)
            except (WorkerLostError, MisuseError) as error:
                self._pool.dismiss(pooled.name, str(error))
            except trio.TooSlowError:
                self._pool.dismiss(pooled.name, f"no answer to retrievals for {self._patience:g} s")

    def _pinned(self, number: int) -> PooledWorker:
        """The worker of a slice; of those that are there, the one with the fewest where it has none."""
        workers = self._pool.workers
        self._pins = {pinned: name for pinned, name in self._pins.items() if name in workers}
        if number not in self._pins:
            held = list(self._pins.values())
            self._pins[number] = min(workers, key=lambda name: (held.count(name), name))
        return workers[self._pins[number]]


def _checked(reply: Reply, queries: int, size: int) -> tuple[AnsweredReport, npt.NDArray[np.uint8]]:
    """What a worker answers.

    Raises:
        MisuseError: it is no answer of that size to each of so many queries.
    """
    report = decoded(reply.report, AnsweredReport)
    if len(reply.arrays) != 1 or not set(report.damaged) <= set(range(queries)):
        raise MisuseError("it sends something else than answers")
    (answers,) = reply.arrays
    if answers.dtype != np.uint8 or answers.shape != (queries - len(report.damaged), size):
        came = f"{answers.dtype} in the shape {answers.shape}"
        raise MisuseError(f"it sends {came} to {queries} queries, which have answers of {size} bytes")
    return report, answers


class ClusterEngine(Engine):
    """Computes on a cluster.

    Args:
        cluster: which.
        owner: whose blobs its workers must have (`parties.deployment.blobs.blobs_owner`).
        release: the release that they must have.
        lane: where partials are merged, shares are formed and retrievals are answered, in this process.
        randomness: names this life of the server.
        pace: how much a worker is told at a time.
        answering: whether workers answer retrievals, too; otherwise this process does.
    """

    reads_blobs = True

    def __init__(
        self,
        cluster: Cluster,
        owner: bytes,
        release: str,
        lane: ComputeLane,
        randomness: Randomness,
        pace: Pace,
        *,
        answering: bool = False,
    ) -> None:
        self._cluster = cluster
        self._pool = WorkerPool(cluster, owner, release)
        self._lane = lane
        self._life = randomness(16)
        self._pace = pace
        self._answering = answering
        self._sums = 0
        self._bytes = 0
        self._current: ClusterSum | None = None

    async def run(self, observe: Observer) -> None:
        """See `Engine.run`."""
        self._pool.observe = observe
        self._pool.takes_plain = await self._lane.run(kernels.active_isa) == PLAIN.name
        await self._pool.run()

    def sum(self, work: RoundWork) -> RoundSum:
        """See `Engine.sum`."""
        brief = self._next_brief(work.start, work.start.proof_key)
        self._current = ClusterSum(work, self._pool, self._lane, brief, self._pace, self._take_bytes)
        return self._current

    def answers(self, start: RoundStart, model: Model, records: RoundRecords) -> RetrievalBatcher[Any]:
        """See `Engine.answers`."""
        if not self._answering:
            return RetrievalBatcher(PassesInProcess(start.config, start.server, model, records, self._lane))
        brief = self._next_brief(start, proof_key=b"")
        return RetrievalBatcher(
            PassesOnWorkers(start, model, records, self._pool, self._lane, brief, self._pace.patience)
        )

    def status(self) -> EngineStatus:
        """See `Engine.status`."""
        states = () if self._current is None else self._current.states
        at_work = [state for state in states if not isinstance(state, Settled)]
        workers = {name: worker for state in at_work for name, worker in state.workers.items()}
        waiting = {client for state in states for client in (*state.waiting, *state.aside)}
        opened = [worker.partial for worker in workers.values() if worker.partial is not None]
        return EngineStatus(
            engine=self._cluster.kind,
            where=self._cluster.where,
            connected=self._pool.connected,
            workers=tuple(_worker_status(pooled, workers.get(pooled.name)) for pooled in self._pool.workers.values()),
            waiting=len(waiting) + (0 if self._current is None else self._current.unheard),
            open=len(opened),
            sealed=sum(len(state.counting) for state in states),
            given_again=sum(state.given_again for state in states),
            bytes_taken=self._bytes,
        )

    def _next_brief(self, start: RoundStart, proof_key: bytes) -> Brief:
        """A round, under a number that no sum and no passes of this life have had."""
        self._sums += 1
        config = start.config.canonical()
        return Brief(life=self._life, sum=self._sums, config=config, server=start.server, proof_key=proof_key)

    def _take_bytes(self, count: int) -> None:
        self._bytes += count


def _worker_status(pooled: PooledWorker, worker: Worker | None) -> WorkerStatus:
    adding = sum(len(order.clients) for order in worker.orders) if worker else 0
    held = len(worker.partial.clients) if worker and worker.partial else 0
    return WorkerStatus(name=printable(pooled.name), host=printable(pooled.host), adding=adding, held=held - adding)
