"""A round whose submissions and retrievals lie in a folder of blobs, and clusters of processes that work on it.

Scheduler and workers are what `fsl-async scheduler` and `fsl-async worker` are, with TLS. This process is their server,
as far as sums and answers go: it has no clients, and its records are the blobs and what was put there.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
import trio

from fsl_async.derivation import public_digest, tree_digest
from fsl_async.errors import FslError, MisuseError
from fsl_async.server.aggregation import Aggregate
from fsl_async.wire.public_part import Layout, Part, Trees
from parties.cluster.engine import PassesOnWorkers
from parties.cluster.orders import Brief
from parties.cluster.partial_sum import ClusterSum, Pace
from parties.cluster.worker_pool import WorkerPool
from parties.commands.bench.machine import spent_by
from parties.commands.bench.workload import PROOF_KEY, Case, client_of
from parties.commands.demo.processes import write_cluster, write_parties, write_server
from parties.compute import ComputeLane
from parties.deployment.blobs import blobs_owner, open_blobs
from parties.deployment.compute import cluster_of
from parties.server.round.engine import RoundStart, RoundSum, RoundWork
from parties.server.round.reading import ReadBack, StoredSubmission, SubmissionReader
from parties.server.round.records import RoundRecords
from parties.server.round.retrieval import Asked
from parties.server.store_layout import RequestKey, part_name, round_prefix
from parties.settings.host_file import HostFile
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses
from parties.storage.blobs.blobs import Blobs

QUERIES = 16
JOIN_SECONDS = 120.0


@dataclass(frozen=True)
class _Records:
    """What workers and this process read of the round."""

    blobs: Blobs
    read: ReadBack
    prefix: str
    submissions: Mapping[str, StoredSubmission]

    async def stored_submission(self, client: str) -> StoredSubmission:
        """A submission without its bulk."""
        return self.submissions[client]

    async def session_trees(self, client: str) -> Part:
        """No client has a session."""
        raise MisuseError(f"{client} has no session")

    async def part(self, key: RequestKey, name: bytes) -> memoryview:
        """A public part, read and compared with its digest."""
        return await self.read.part(part_name(self.prefix, key, name), key.purpose, name)


@dataclass(frozen=True)
class Site:
    """A round in a folder.

    Attributes:
        case: its sizes.
        folder: where everything lies.
        begun: what it began with.
        records: where its bulk is.
        clients: who has submitted.
        asked: retrievals that have come.
    """

    case: Case
    folder: Path
    begun: RoundStart
    records: RoundRecords
    clients: frozenset[str]
    asked: tuple[Asked, ...] = field(repr=False)

    def work(self, lane: ComputeLane) -> RoundWork:
        """The round as an engine is given it; what this process reads is compared in a lane."""
        known = cast("_Records", self.records)
        read = ReadBack(known.blobs, lane, self.begun.config.shape)
        reader = SubmissionReader(read, self.begun.config, self.records.part, self.records.session_trees)

        async def fetch(client: str) -> object:
            return await reader.read(known.submissions[client])

        return RoundWork(self.begun, self.records, fetch, lambda client, seconds: None, trio.Event())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Turn:
    """A round that was added up once.

    Attributes:
        seconds: from the first submission put until the sum was settled.
        own: seconds of processors of this process.
        workers: of workers.
        digest: names the sum.
    """

    seconds: float
    own: float
    workers: float
    digest: bytes


@dataclass(eq=False)
class Hands:
    """A cluster: its scheduler and its workers, as processes of one thread each.

    Attributes:
        site: the round.
        pool: the workers, as a server has them.
        lane: where this process merges.
        processes: the workers'.
        names: by process number, what each is called.
    """

    site: Site
    file: Path
    pool: WorkerPool
    lane: ComputeLane
    nursery: trio.Nursery
    processes: list[trio.Process] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    sums: int = 0
    life: bytes = field(default_factory=lambda: os.urandom(16), repr=False)

    @property
    def identifiers(self) -> list[int]:
        """The workers' process numbers."""
        return [process.pid for process in self.processes]

    async def start(self) -> None:
        """Start one worker more, and wait until it is used."""
        before = set(self.pool.workers)
        self.processes.append(await self.nursery.start(partial(_run, self.file, "worker")))
        with trio.move_on_after(JOIN_SECONDS):
            while not (joined := set(self.pool.workers) - before):  # noqa: ASYNC110 - a pool tells only who adds up
                await trio.sleep(0.02)
            self.names[self.processes[-1].pid] = joined.pop()
            return
        raise FslError(f"a worker has not joined within {JOIN_SECONDS:g} s: see {self.file.parent}/worker.log")

    async def kill(self, process: trio.Process) -> None:
        """Kill a worker."""
        self.processes.remove(process)
        process.kill()
        await process.wait()

    def sum(self, pace: Pace) -> ClusterSum:
        """A new sum of the round."""
        work = self.site.work(self.lane)
        brief = self._next_brief(work.start.proof_key)
        return ClusterSum(work, self.pool, self.lane, brief, pace, lambda count: None)

    def passes(self, pace: Pace) -> PassesOnWorkers:
        """Passes over the round's model."""
        begun, records, brief = self.site.begun, self.site.records, self._next_brief(b"")
        return PassesOnWorkers(begun, begun.model, records, self.pool, self.lane, brief, pace.patience)

    def _next_brief(self, proof_key: bytes) -> Brief:
        self.sums += 1
        config = self.site.begun.config.canonical()
        return Brief(life=self.life, sum=self.sums, config=config, server=0, proof_key=proof_key)


@asynccontextmanager
async def site(case: Case, lane: ComputeLane) -> AsyncIterator[Site]:
    """Lay out a round of a case: all its clients' submissions, and retrievals of as many as share a pass."""
    with TemporaryDirectory(prefix="fsl-async-bench-") as name:
        folder = Path(name)
        write_parties(folder, case.task, free_addresses(2), [])
        file = HostFile.load(_write_file(folder, "S0.toml")).named("")
        blobs = await open_blobs(file, Deployment.load(folder / "task.toml"))
        try:
            submissions, asked = await _put(case, blobs)
            read = ReadBack(blobs, lane, case.config.shape)
            records = cast("RoundRecords", _Records(blobs, read, round_prefix(1), submissions))
            rows = np.random.default_rng(1).random((case.rows, case.width), dtype=np.float32)
            begun = RoundStart(case.config, 0, PROOF_KEY, {"block": rows}, {}, {}, 0.0, float("inf"), len(submissions))
            yield Site(case, folder, begun, records, frozenset(submissions), asked)
        finally:
            await blobs.aclose()


@asynccontextmanager
async def cluster(here: Site, count: int, lane: ComputeLane) -> AsyncIterator[Hands]:
    """Start a scheduler and so many workers."""
    file = _write_file(here.folder, f"cluster-{count}.toml", compute=write_cluster(here.folder))
    settings, deployment = HostFile.load(file).named(""), Deployment.load(here.folder / "task.toml")
    release = importlib.metadata.version("fsl-async")
    pool = WorkerPool(cluster_of(settings, deployment), blobs_owner(deployment, 0), release)
    async with trio.open_nursery() as processes:
        await processes.start(partial(_run, file, "scheduler"))
        async with trio.open_nursery() as nursery:  # is left first: it disconnects from a scheduler that is there
            nursery.start_soon(pool.run)
            hands = Hands(here, file, pool, lane, processes)
            for _ in range(count):
                await hands.start()
            yield hands
            nursery.cancel_scope.cancel()
        processes.cancel_scope.cancel()


async def add_up(total: RoundSum, here: Site, workers: Sequence[int] = ()) -> Turn:
    """Have a sum add up the whole round, from the first submission that is put until it is settled.

    Args:
        total: the sum, new.
        here: the round.
        workers: the numbers of processes whose time counts as workers'.
    """
    async with trio.open_nursery() as nursery:
        nursery.start_soon(total.work)
        spent, own, begun = _spent(workers), time.process_time(), time.perf_counter()
        for client in here.clients:
            total.put(client)
        async with total.settled(here.clients) as aggregate:
            seconds, own = time.perf_counter() - begun, time.process_time() - own
            turn = Turn(seconds, own, _spent(workers) - spent, _digest(aggregate))
        total.release()
        nursery.cancel_scope.cancel()
    return turn


def _spent(workers: Sequence[int]) -> float:
    return sum(spent_by(process).total for process in workers)


def _digest(aggregate: Aggregate) -> bytes:
    found = hashlib.blake2b()
    for array in aggregate.content():
        found.update(np.ascontiguousarray(array).data)
    return found.digest()


def _write_file(folder: Path, name: str, **keys: Any) -> Path:
    written = write_server(folder, 0, free_addresses(1)[0], threads=1, log={"level": "error"}, **keys)
    return written.rename(folder / name)


async def _run(file: Path, role: str, *, task_status: trio.TaskStatus[trio.Process]) -> None:
    """Run a process of the cluster until cancelled, or until it is killed."""
    command = [sys.executable, "-m", "parties", role, str(file)]
    with (file.parent / f"{role}.log").open("ab") as log:
        await trio.run_process(
            command, stdout=log, stderr=log, check=False, deliver_cancel=_stop, task_status=task_status
        )


async def _stop(process: trio.Process) -> None:
    """It may take more than the few seconds after which a process would be killed."""
    process.terminate()
    await process.wait()


async def _put(case: Case, blobs: Blobs) -> tuple[dict[str, StoredSubmission], tuple[Asked, ...]]:
    prefix, submissions, asked = round_prefix(1), dict[str, StoredSubmission](), list[Asked]()
    for number in range(max(case.clients, QUERIES)):
        client = await trio.to_thread.run_sync(client_of, case, number)
        submission = client.submissions()[0]
        name = client.name
        if number < case.clients:
            layout, part = Layout.submission(case.config.shape, Trees.OWN), submission.part.data
            digest = public_digest(layout, part, tree_digest(layout, part))
            await blobs.put(part_name(prefix, RequestKey(name, "submit", 0), digest), part, durable=False)
            submissions[name] = StoredSubmission(
                client=name,
                name=digest,
                msk=submission.msk,
                commitments=submission.commitments,
                tree=submission.tree,
                trees=Trees.OWN,
                query=0,
                query_part=b"",
                part=digest,
                bind=b"",
            )
        if number < QUERIES:
            query, layout = client.query(0), Layout.retrieval(case.config.shape)
            digest = public_digest(layout, query.trees.data, tree_digest(layout, query.trees.data))
            key = RequestKey(name, "retrieve", 1)
            await blobs.put(part_name(prefix, key, digest), query.trees.data, durable=False)
            asked.append(Asked(name, query.msk, key, digest))
    return submissions, tuple(asked)
