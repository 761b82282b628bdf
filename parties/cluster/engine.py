"""The engine that has workers of a cluster add submissions; what they add up to is checked and merged here."""

from __future__ import annotations

from fsl_async import kernels
from fsl_async.protocols.partials import PartialSum, Settled, Worker
from fsl_async.randomness import Randomness
from parties.cluster.cluster import Cluster
from parties.cluster.crew import PORTABLE, Crew, Hand
from parties.cluster.orders import Brief
from parties.cluster.partial_sum import ClusterSum, Naming, Pace
from parties.cluster.passes import PassesOnWorkers
from parties.compute import ComputeLane
from parties.events import Observer
from parties.outcome import Model
from parties.server.round.engine import Answers, Engine, RoundStart, RoundSum, RoundWork
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import PassesInProcess, RetrievalBatcher
from parties.status import EngineStatus, WorkerStatus

__all__ = ["ClusterEngine"]


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
        self._crew = Crew(cluster, owner, release)
        self._lane = lane
        self._life = randomness(16)
        self._pace = pace
        self._answering = answering
        self._sums = 0
        self._bytes = 0
        self._current: ClusterSum | None = None

    async def run(self, observe: Observer) -> None:
        """See `Engine.run`."""
        self._crew.observe = observe
        self._crew.takes_portable = await self._lane.run(kernels.active_isa) == PORTABLE
        await self._crew.run()

    def sum(self, work: RoundWork) -> RoundSum:
        """See `Engine.sum`."""
        self._sums += 1
        naming = Naming(self._life, self._sums)
        self._current = ClusterSum(work, self._crew, self._lane, naming, self._pace, self._take_bytes)
        return self._current

    def answers(self, start: RoundStart, model: Model, records: RoundRecords) -> Answers:
        """See `Engine.answers`."""
        if not self._answering:
            return RetrievalBatcher(PassesInProcess(start.config, start.server, model, records, self._lane))
        self._sums += 1
        brief = Brief(
            life=self._life, sum=self._sums, config=start.config.canonical(), server=start.server, proof_key=b""
        )
        return RetrievalBatcher(
            PassesOnWorkers(start, model, records, self._crew, self._lane, brief, self._pace.patience)
        )

    def status(self) -> EngineStatus:
        """See `Engine.status`."""
        states = () if self._current is None else self._current.states
        workers = {name: worker for state in states for name, worker in state.workers.items() if _is_at_work(state)}
        waiting = {client for state in states for client in (*state.waiting, *state.aside)}
        opened = [worker.partial for worker in workers.values() if worker.partial is not None]
        return EngineStatus(
            engine=self._cluster.kind,
            where=self._cluster.where,
            connected=self._crew.connected,
            workers=tuple(_worker_status(hand, workers.get(hand.name)) for hand in self._crew.hands.values()),
            waiting=len(waiting) + (0 if self._current is None else self._current.unheard),
            open=len(opened),
            sealed=sum(len(state.counting) for state in states),
            given_again=sum(state.given_again for state in states),
            bytes_taken=self._bytes,
        )

    def _take_bytes(self, count: int) -> None:
        self._bytes += count


def _is_at_work(state: PartialSum) -> bool:
    return not isinstance(state, Settled)


def _worker_status(hand: Hand, worker: Worker | None) -> WorkerStatus:
    adding = sum(len(order.clients) for order in worker.orders) if worker else 0
    held = len(worker.partial.clients) if worker and worker.partial else 0
    return WorkerStatus(name=hand.name, host=hand.host, adding=adding, held=held - adding)
