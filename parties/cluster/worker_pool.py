"""The workers that a server uses: those of its cluster that greet it as they must, for as long as they are there.

A worker of another release, with the blobs of another server or without AES is refused by name, once in its life. One
that fails is left alone for a while, and greeted again with nothing in hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import trio

from fsl_async.errors import MisuseError
from fsl_async.kernels.simd.isa import PLAIN
from parties.cluster.cluster import Cluster, ClusterAwayError, Members, WorkerLostError
from parties.cluster.orders import HelloReport, decoded
from parties.concurrency import RecurringEvent
from parties.events import Observer, Warned, unobserved

_log = logging.getLogger("parties.cluster")

PAUSE = 2.0
"""Seconds until a cluster that is away, or a worker that has failed, is tried again."""


@dataclass(frozen=True)
class PooledWorker:
    """A worker that is used.

    Attributes:
        name: its name.
        host: where it runs.
        key: orders are sealed to it.
        threads: with how many it computes.
        memory: bytes that it may use; 0 where it does not know.
    """

    name: str
    host: str
    key: bytes
    threads: int
    memory: int = 0


Joined: TypeAlias = Callable[[PooledWorker], None]
"""Hears of a worker that is there, with nothing in hand."""

Lost: TypeAlias = Callable[[str], None]
"""Hears the name of one that is gone."""


def unfit(report: HelloReport, release: str, owner: bytes, *, takes_plain: bool) -> str:
    """Why a worker cannot be used by a server of that release, with those blobs; empty if it can."""
    if report.release != release:
        return f"it has release {report.release}, and this server {release}; install the same on both"
    if report.owner != owner:
        return "it has the blobs of another server or task; start it with this server's file"
    if report.isa == PLAIN.name and not takes_plain:
        return "it has no compiled kernels, and would take ten times as long or more; install numba there"
    return ""


class WorkerPool:
    """Keeps the workers of one cluster at hand.

    Args:
        cluster: which.
        owner: whose blobs they must have.
        release: the release that they must have.

    Attributes:
        cluster: that one.
        observe: hears of what an operator should look at.
        connected: whether the cluster is connected.
        takes_plain: whether workers without compiled kernels are taken, because the server has none either.
        workers: the workers that are used, by name.
    """

    def __init__(self, cluster: Cluster, owner: bytes, release: str) -> None:
        self.connected = False
        self.workers: dict[str, PooledWorker] = {}
        self.cluster = cluster
        self._owner = owner
        self._release = release
        self.takes_plain = False
        self.observe: Observer = unobserved
        self._members: Members = {}
        self._refused: set[str] = set()
        self._listeners: list[tuple[Joined, Lost]] = []
        self._greeting: set[str] = set()
        self._told = ""
        self._met = RecurringEvent()
        self._nursery: trio.Nursery

    async def run(self) -> None:
        """Stay connected until cancelled."""
        async with trio.open_nursery() as self._nursery:
            while True:
                try:
                    await self.cluster.stay_connected(self._changed)
                except ClusterAwayError as error:
                    self._away(str(error))
                await trio.sleep(PAUSE)

    @contextmanager
    def heard_by(self, joined: Joined, lost: Lost) -> Iterator[None]:
        """Within this context these two are called, first for the workers that are there."""
        listener = joined, lost
        self._listeners.append(listener)
        try:
            for pooled in self.workers.values():
                joined(pooled)
            yield
        finally:
            self._listeners.remove(listener)

    async def wait_for_hands(self) -> None:
        """Wait until there is a worker."""
        while not self.workers:
            await self._met.wait()

    def dismiss(self, worker: str, why: str) -> None:
        """A worker has failed: it is not used for a while."""
        if worker in self.workers:
            self.observe(Warned(about="compute", explanation=f"worker {worker} has failed: {why}"))
            self._lose(worker)
            self._meet(worker, PAUSE)

    def _away(self, why: str) -> None:
        self._changed({})
        self.connected = False
        if why != self._told:
            self._told = why
            self.observe(Warned(about="compute", explanation=f"{why}; what it computes waits"))

    def _changed(self, members: Members) -> None:
        if not self.connected:
            _log.info("connected with the cluster at %s: %d workers", self.cluster.where, len(members))
        self.connected, self._told, self._members = True, "", dict(members)
        self._refused &= members.keys()
        for name in [name for name in self.workers if name not in members]:
            _log.warning("worker %s is gone: what it held is given out again", name)
            self._lose(name)
        for name in sorted(members.keys() - self.workers.keys() - self._greeting - self._refused):
            self._meet(name)

    def _lose(self, name: str) -> None:
        del self.workers[name]
        for _, lost in self._listeners:
            lost(name)

    def _meet(self, name: str, after: float = 0.0) -> None:
        self._greeting.add(name)
        self._nursery.start_soon(self._greet, name, after)

    async def _greet(self, name: str, after: float) -> None:
        """Use a worker, if it is as it must be, for as long as it is there."""
        await trio.sleep(after)
        while name in self._members:
            try:
                report = decoded((await self.cluster.call(name, "hello", b"")).report, HelloReport)
            except WorkerLostError as error:
                _log.warning("worker %s does not answer: %s", name, error)
                await trio.sleep(PAUSE)
            except MisuseError as error:
                self._refuse(name, f"it says {error}")
                break
            else:
                self._judge(name, report)
                break
        self._greeting.discard(name)

    def _judge(self, name: str, report: HelloReport) -> None:
        if name not in self._members:
            return
        if wrong := unfit(report, self._release, self._owner, takes_plain=self.takes_plain):
            self._refuse(name, wrong)
            return
        pooled = self.workers[name] = PooledWorker(
            name, self._members[name], report.key, max(1, report.threads), report.memory
        )
        _log.info("worker %s on %s computes with %d threads", name, pooled.host, pooled.threads)
        self._met.set()
        for joined, _ in self._listeners:
            joined(pooled)

    def _refuse(self, name: str, why: str) -> None:
        self._refused.add(name)
        self.observe(Warned(about="compute", explanation=f"worker {name} is not used: {why}"))
