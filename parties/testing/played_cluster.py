"""A cluster in a simulated world: its workers are processes that are killed and started again.

A call takes as long as the worker's computation; one whose worker is killed comes to nothing, and the server hears a
second later who is gone. A worker may also be stopped: it answers nobody, nobody calls it lost, and when it goes on it
does what it was told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from fsl_async.errors import FslError
from parties.cluster.cluster import Cluster, Members, Reply, WorkerLostError
from parties.cluster.worker_service import WorkerService
from parties.concurrency import RecurringEvent
from parties.testing.processes import Life

HEARD_AFTER = 1.0
"""Virtual seconds until a server hears of a worker that is there, or gone."""


@dataclass(eq=False)
class _Played:
    service: WorkerService
    life: Life
    gone: trio.Event = field(default_factory=trio.Event)


class PlayedCluster(Cluster):
    """The workers of one simulated server.

    Attributes:
        calls: by action, how many calls there were.
    """

    kind = "played"

    def __init__(self, where: str) -> None:
        self.where = where
        self.calls: dict[str, int] = {}
        self._stopped: list[str] = []
        self._workers: dict[str, _Played] = {}
        self._changed = RecurringEvent()

    async def live(self, service: WorkerService, life: Life) -> None:
        """Be a worker for as long as a process lives."""
        name = f"{life.process.name}.{life.number}"
        played = self._workers[name] = _Played(service, life)
        life.ending.append(lambda: self._leave(name))
        self._changed.set()
        try:
            await trio.sleep_forever()
        finally:
            self._leave(name)
            played.gone.set()

    async def stay_connected(self, changed: Callable[[Members], None]) -> None:
        """See `Cluster.stay_connected`."""
        while True:
            waits = self._changed.next
            changed({name: played.life.process.name for name, played in self._workers.items()})
            await waits.wait()
            await trio.sleep(HEARD_AFTER)

    async def call(self, worker: str, action: str, order: bytes) -> Reply:
        """See `Cluster.call`."""
        self.calls[action] = self.calls.get(action, 0) + 1
        played = self._workers.get(worker)
        if played is None:
            raise WorkerLostError(f"{worker} is gone")
        ended: list[Reply | WorkerLostError] = []
        async with trio.open_nursery() as nursery:

            async def carry_out() -> None:
                while played.life.process.name in self._stopped:
                    await self._changed.wait()
                try:
                    ended.append(await played.service.perform(action, order))
                except FslError as error:
                    ended.append(WorkerLostError(f"{type(error).__name__}: {error}"))
                nursery.cancel_scope.cancel()

            nursery.start_soon(carry_out)
            await played.gone.wait()
            nursery.cancel_scope.cancel()
        match ended:
            case [WorkerLostError() as error]:
                raise error
            case [Reply() as reply] if played.life.alive:
                return reply
        raise WorkerLostError(f"{worker} was killed")

    @contextmanager
    def stopping(self, process: str) -> Iterator[None]:
        """Within this context the worker of a process answers nobody."""
        self._stopped.append(process)
        try:
            yield
        finally:
            self._stopped.remove(process)
            self._changed.set()

    def _leave(self, name: str) -> None:
        if self._workers.pop(name, None) is not None:
            self._changed.set()
