"""A worker of a server's cluster, or the cluster's scheduler, in a process of its own.

    SIGTERM, SIGINT   end

Rules: a worker reads the server's file, the task file, the blobs and its certificate, and nothing else of the server's:
no keys, no store, no model. When its scheduler ends it ends as well, and its supervisor starts it again.
"""

from __future__ import annotations

import importlib.metadata
import logging
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import trio
from nacl.public import PrivateKey

from fsl_async.errors import MisuseError
from parties.cluster.first_contact import check_certificates
from parties.cluster.worker_service import WorkerService, WorkerSetup
from parties.compute import ThreadLane
from parties.deployment.blobs import blobs_owner, open_blobs
from parties.deployment.compute import belongs_to, certificates_of, security_of
from parties.deployment.process import forbid_core_dumps, load_kernels, tell_supervisor
from parties.deployment.process_memory import collecting_seldom, keep_freed_memory
from parties.operator import Log
from parties.settings.host_file import HostFile
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment

_log = logging.getLogger("parties.serving")

Role: TypeAlias = Literal["worker", "scheduler"]


@dataclass(frozen=True)
class ComputeServed:
    """How the process of a worker or a scheduler ended: it was told to.

    Attributes:
        role: what it was.
        server: 0 or 1.
        task: the task's name.
    """

    role: Role
    server: int
    task: str


async def serve_worker(config: Path, *, task: str = "", threads: int = 0) -> ComputeServed:
    """Be a worker of a server until told to stop.

    Args:
        config: the server's file.
        task: the name of its task, where it has several.
        threads: how many to compute with; 0: as the file says.

    Raises:
        MisuseError: a file is missing or wrong, the server has no cluster, or its scheduler and this worker refuse each
            other's certificates.
        StorageError: the blobs cannot be used.
        UnreachableError: the scheduler cannot be reached, or has ended.
    """
    forbid_core_dumps()
    keep_freed_memory()
    file, deployment = _settings(config, task)
    security = security_of(file.compute)
    from distributed.system import MEMORY_LIMIT

    from parties.cluster.dask_cluster import member_name
    from parties.cluster.dask_processes import run_worker

    name = member_name(belongs_to(deployment))
    log = Log(f"S{file.server}", form=file.log.format, level=file.log.level, member=name)
    with log.installed():
        async with _until_told() as scope:
            compute = file.compute
            await trio.to_thread.run_sync(check_certificates, compute.scheduler, certificates_of(compute))
            await trio.to_thread.run_sync(load_kernels)
            blobs = await open_blobs(file, deployment, create=False)
            try:
                service = WorkerService(
                    WorkerSetup(
                        blobs=blobs,
                        owner=blobs_owner(deployment, file.server),
                        lane=ThreadLane(threads or file.threads or None),
                        release=importlib.metadata.version("fsl-async"),
                        secret=PrivateKey.generate(),
                        memory=compute.worker_memory_bytes or MEMORY_LIMIT,
                    )
                )
                with scope, collecting_seldom():
                    ready = _tell("worker", name)
                    await run_worker(service, compute.scheduler, security, name, compute.worker_host, ready)
            finally:
                with trio.CancelScope(shield=True):
                    await blobs.aclose()
    return ComputeServed("worker", file.server, deployment.task.name)


async def serve_scheduler(config: Path, *, task: str = "") -> ComputeServed:
    """Be the scheduler of a server's cluster until told to stop.

    Args:
        config: the server's file.
        task: the name of one of its tasks, where it has several.

    Raises:
        MisuseError: a file is missing or wrong, or the server has no cluster.
        UnreachableError: it cannot listen there.
    """
    forbid_core_dumps()
    file, deployment = _settings(config, task)
    security = security_of(file.compute)
    from parties.cluster.dask_processes import run_scheduler

    log = Log(f"S{file.server}", form=file.log.format, level=file.log.level, member="scheduler")
    with log.installed():
        async with _until_told() as scope:
            with scope:
                compute = file.compute
                await run_scheduler(compute.scheduler, security, compute.worker_ttl, _tell("scheduler", "scheduler"))
    return ComputeServed("scheduler", file.server, deployment.task.name)


def _settings(config: Path, task: str) -> tuple[ServerFile, Deployment]:
    file = HostFile.load(config).named(task)
    if not file.compute:
        raise MisuseError(
            f'{config} has no cluster: add [compute] with engine = "dask" and the scheduler\'s address; see scaling.md'
        )
    return file, Deployment.load(file.task)


def _tell(role: Role, name: str) -> Callable[[str], None]:
    """Tell the log and the supervisor that the process is ready."""

    def ready(address: str) -> None:
        _log.info("%s listens at %s", name if name == role else f"{role} {name}", address)
        tell_supervisor("READY=1")

    return ready


@asynccontextmanager
async def _until_told() -> AsyncIterator[trio.CancelScope]:
    """A scope that SIGTERM and SIGINT cancel."""
    scope = trio.CancelScope()

    async def obey(signals: AsyncIterator[int]) -> None:
        async for _ in signals:
            tell_supervisor("STOPPING=1")
            _log.info("asked to stop")
            scope.cancel()

    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(obey, signals)
            yield scope
            nursery.cancel_scope.cancel()
