"""What computes a server's rounds, made as its file says."""

from __future__ import annotations

import importlib.metadata
import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fsl_async.errors import MisuseError
from parties.compute import ComputeLane
from parties.deployment.blobs import blobs_owner
from parties.server.round.engine import Engine
from parties.settings.party_file import ServerFile
from parties.settings.reading import OnDisk
from parties.settings.server_tables import ComputeTable
from parties.settings.task_file import Deployment

if TYPE_CHECKING:  # what a server without workers never loads
    from distributed import Security

    from parties.cluster.cluster import Cluster


WITHOUT_DASK: Final = "compute.engine = \"dask\" needs Dask: pip install 'fsl-async[dask]'"


def engine_of(file: ServerFile, deployment: Deployment, lane: ComputeLane) -> Engine | None:
    """The engine that a server's file names; None where its own process computes.

    Raises:
        MisuseError: Dask is not installed, or a certificate cannot be used.
    """
    compute = file.compute
    if not compute:
        return None
    from parties.cluster.engine import ClusterEngine
    from parties.cluster.partial_sum import Pace

    return ClusterEngine(
        cluster_of(file, deployment),
        blobs_owner(deployment, file.server),
        importlib.metadata.version("fsl-async"),
        lane,
        os.urandom,
        Pace(task_seconds=compute.task_seconds, patience=compute.worker_patience),
        answering=compute.answers == "workers",
    )


def cluster_of(file: ServerFile, deployment: Deployment) -> Cluster:
    """The cluster that a server's file names, not connected yet.

    Raises:
        MisuseError: Dask is not installed, or a certificate cannot be used.
    """
    compute = file.compute
    if find_spec("distributed") is None:
        raise MisuseError(WITHOUT_DASK)
    from parties.cluster.apart import DaskApart

    closed = (file.identity, *([file.store.path] if isinstance(file.store, OnDisk) else []))
    return DaskApart(compute.scheduler, certificates_of(compute), belongs_to(deployment), closed)


def belongs_to(deployment: Deployment) -> str:
    """How the names of a task's workers begin."""
    return f"fsl-{deployment.task.digest().hex()[:12]}"


def security_of(compute: ComputeTable) -> Security | None:
    """The certificates with which a cluster is reached; None where it is reached in the clear, on this host.

    Raises:
        MisuseError: Dask is not installed, or a file cannot be used.
    """
    from parties.cluster.frames import HIDDEN

    try:
        from parties.cluster.dask_cluster import security_with
    except ImportError as error:
        raise MisuseError(WITHOUT_DASK) from error
    except OSError as error:
        raise MisuseError(HIDDEN.format(error)) from error
    certificates = certificates_of(compute)
    return None if certificates is None else security_with(*map(str, certificates))


def certificates_of(compute: ComputeTable) -> tuple[Path, Path, Path] | None:
    """The files of the authority, the certificate and its key; None where a cluster is reached in the clear.

    Raises:
        MisuseError: one cannot be read, is no certificate or no key of it, or others can read the key.
    """
    if compute.scheduler.startswith("tcp://"):
        return None
    import ssl

    ca, certificate, key = (Path(str(path)) for path in (compute.ca, compute.certificate, compute.key))
    for name, path in (("ca", ca), ("certificate", certificate), ("key", key)):
        if not os.access(path, os.R_OK):
            raise MisuseError(f"compute.{name}: {path} cannot be read")
    if key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) and key.stat().st_uid == os.geteuid():
        raise MisuseError(f"compute.key: others can read {key}: `chmod 600 {key}`")
    try:
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise MisuseError(
            f"compute: {ca}, {certificate} and {key} are no authority's certificate and a certificate with its key: "
            f"{error}"
        ) from error
    return ca, certificate, key
