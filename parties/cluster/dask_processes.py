"""A Dask worker and a Dask scheduler as processes, with settings that are safe for shares and seeds.

Rules: they listen at one address each, with mutual TLS unless that is on this host; there are no HTTP routes; nothing
is spilled to a disk, for a partial sum is a share. A worker ends when its scheduler does, and its supervisor starts it
again.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import dask
import trio
from distributed import Scheduler, Security, Worker

from parties.cluster.cluster import Reply
from parties.cluster.dask_cluster import speak_through_our_log
from parties.cluster.first_contact import own_address
from parties.cluster.worker_service import WorkerService
from transport.errors import UnreachableError

SAFE: Final[dict[str, Any]] = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.log-length": 0,
}

JOIN_SECONDS = 30.0
"""A worker ends if it has not found its scheduler by then."""

TASKS = 2
"""At a time: one adds, and the other one reads what is added next."""


class _SilentHttp:
    """In the place of `distributed`'s HTTP server, for which it has no switch: nothing listens."""

    def start_http_server(self, *args: object, **kwargs: object) -> None:
        self.http_server = None


class _Worker(_SilentHttp, Worker):
    perform: Callable[[str, bytes], Reply]


class _Scheduler(_SilentHttp, Scheduler):
    pass


async def run_worker(
    service: WorkerService,
    scheduler: str,
    security: Security | None,
    name: str,
    host: str,
    ready: Callable[[str], None],
) -> None:
    """Be a worker until cancelled, or until the scheduler is gone.

    Args:
        service: does the work, in this trio loop.
        scheduler: the scheduler's address.
        security: the certificates; None with tcp.
        name: the worker's.
        host: the address of this host at which it listens, and others reach it; empty: the one from which it reaches
            the scheduler.
        ready: called with the worker's address once it has joined.

    Raises:
        UnreachableError: the scheduler cannot be reached, refuses this worker, or has ended.
    """
    token = trio.lowlevel.current_trio_token()
    try:
        address = host or await trio.to_thread.run_sync(own_address, scheduler)
    except OSError as error:
        raise UnreachableError(f"there is no way to the scheduler at {scheduler}: {error}") from error

    async def make() -> Any:
        worker = _Worker(
            scheduler,
            nthreads=TASKS,
            name=name,
            host=address,
            security=security,
            memory_limit=0,
            local_directory=folder,
            death_timeout=JOIN_SECONDS,
            dashboard=False,
        )
        worker.perform = lambda action, order: trio.from_thread.run(service.perform, action, order, trio_token=token)
        return await worker

    with tempfile.TemporaryDirectory(prefix="fsl-async-worker-") as folder:
        await _run(make, ready)
    raise UnreachableError(f"the scheduler at {scheduler} has ended or let this worker go, and the worker ends with it")


async def run_scheduler(address: str, security: Security | None, ttl: float, ready: Callable[[str], None]) -> None:
    """Be a scheduler until cancelled.

    Args:
        address: where to listen.
        security: the certificates; None with tcp.
        ttl: seconds after which a worker that is not heard of counts as gone.
        ready: called with the address once it listens.

    Raises:
        UnreachableError: it cannot listen there.
    """
    protocol, _, place = address.partition("://")
    host, _, port = place.rpartition(":")

    async def make() -> Any:
        made = _Scheduler(
            host=host, port=int(port), protocol=protocol, security=security, dashboard=False, worker_ttl=ttl
        )
        return await made

    await _run(make, ready)


async def _run(make: Callable[[], Awaitable[Any]], ready: Callable[[str], None]) -> None:
    """Run a node of Dask's in an asyncio loop beside trio's, until it ends; a cancelled task waits for its end."""
    speak_through_our_log()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None] | None]] = []
    token, ended = trio.lowlevel.current_trio_token(), trio.Event()

    async def live() -> None:
        running.append((asyncio.get_running_loop(), asyncio.current_task()))
        with suppress(asyncio.CancelledError), dask.config.set(SAFE):
            node = await make()
            token.run_sync_soon(ready, node.address)
            try:
                await node.finished()
            finally:
                await node.close()

    async def end_with_this_task() -> None:
        try:
            await ended.wait()
        finally:
            for loop, task in running:
                if task is not None and not ended.is_set():
                    loop.call_soon_threadsafe(task.cancel)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(end_with_this_task)
        try:
            await trio.to_thread.run_sync(asyncio.run, live())
        except (OSError, TimeoutError, ValueError) as error:
            raise UnreachableError(str(error) or type(error).__name__) from error
        finally:
            ended.set()
