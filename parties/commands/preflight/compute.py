"""What `preflight` says of the cluster that computes for a server."""

from __future__ import annotations

import importlib.metadata
import math
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from fsl_async import kernels
from fsl_async.errors import MisuseError, StorageError, sole_error
from fsl_async.kernels.simd.isa import PLAIN
from parties.cluster.cluster import Cluster, ClusterAwayError, Members, WorkerLostError
from parties.cluster.confinement import landlock_version
from parties.cluster.first_contact import check_certificates
from parties.cluster.orders import HelloReport, ReadOrder, ReadReport, decoded, encoded
from parties.cluster.worker_pool import unfit
from parties.commands.preflight.findings import Doubt
from parties.deployment.blobs import blobs_owner, open_once
from parties.deployment.compute import certificates_of, cluster_of
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment

ANSWER_SECONDS = 60.0
"""A worker that computes takes a while to answer."""


def certificates(file: ServerFile) -> str:
    """The files for mutual TLS can be used together, and nobody else can read the key.

    Raises:
        MisuseError: they cannot.
    """
    found = certificates_of(file.compute)
    if found is None:
        return f"none: {file.compute.scheduler} is on this host"
    ca, certificate, key = found
    return f"{certificate} with {key}, under the authority of {ca}: whoever holds one of its certificates is trusted"


def confinement() -> str:
    """The process that talks to Dask can be kept from the server's files.

    Raises:
        Doubt: the kernel cannot do that, or does not allow it here; a server starts all the same.
    """
    version = landlock_version()
    if version < 1:
        raise Doubt(
            "this kernel has no Landlock, or does not allow it here: the process that talks to Dask can then read what "
            "the server can, so whoever has a certificate of the cluster can read the server's secrets; use Linux 5.13 "
            "or later with Landlock, or trust the whole cluster as the server itself"
        )
    return f"the process that talks to Dask is kept from the server's files, by Landlock {version}"


async def workers(file: ServerFile, deployment: Deployment) -> str:
    """Every worker has this release, sound kernels, and reads this server's blobs.

    Raises:
        Doubt: the scheduler cannot be reached, or has no worker; a server waits for them.
        MisuseError: a worker cannot be used, or the scheduler and this server refuse each other's certificates.
        StorageError: a worker cannot read the blobs.
    """
    cluster = cluster_of(file, deployment)
    await trio.to_thread.run_sync(check_certificates, cluster.where, certificates_of(file.compute))
    try:
        async with _connected(cluster) as members:
            await _ask_all(cluster, members, file, deployment)
    except ClusterAwayError as error:
        raise Doubt(f"{error}; a server waits for it") from error
    if not members:
        raise Doubt(f"the scheduler at {cluster.where} has no worker of this task; rounds wait for one")
    return f"{len(members)} at {cluster.where}, all with this release, and each reads the blobs of S{file.server}"


@asynccontextmanager
async def _connected(cluster: Cluster) -> AsyncIterator[Members]:
    """Within this context a cluster is connected; these are its members."""
    send, heard = trio.open_memory_channel[Members](math.inf)
    with sole_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.stay_connected, send.send_nowait)
            yield await heard.receive()
            nursery.cancel_scope.cancel()


async def _ask_all(cluster: Cluster, members: Members, file: ServerFile, deployment: Deployment) -> None:
    place, content = f"preflight/{secrets.token_hex(8)}", secrets.token_bytes(32)
    blobs = await open_once(file, deployment, create=False)
    try:
        await blobs.put(place, content, durable=False)
        for name in sorted(members):
            await _ask(cluster, name, members[name], place, content, file, deployment)
    finally:
        with trio.CancelScope(shield=True):
            await blobs.erase(place)
            await blobs.aclose()


async def _ask(
    cluster: Cluster, name: str, host: str, place: str, content: bytes, file: ServerFile, deployment: Deployment
) -> None:
    who = f"worker {name} on {host}"
    try:
        with trio.fail_after(ANSWER_SECONDS):
            report = decoded((await cluster.call(name, "hello", b"")).report, HelloReport)
            read = decoded((await cluster.call(name, "read", encoded(ReadOrder(place=place)))).report, ReadReport)
    except (WorkerLostError, trio.TooSlowError) as error:
        raise Doubt(f"{who} does not answer: {error}") from error
    release, owner = importlib.metadata.version("fsl-async"), blobs_owner(deployment, file.server)
    plain = await trio.to_thread.run_sync(kernels.active_isa) == PLAIN.name
    if wrong := unfit(report, release, owner, takes_plain=plain):
        raise MisuseError(f"{who} cannot be used: {wrong}")
    if read.problem:
        raise StorageError(f"{who} does not reach the blobs of S{file.server}: {read.problem}")
    if read.content != content:
        raise StorageError(f"{who} reads something else from the blobs than was put there")
