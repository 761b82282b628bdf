"""Which checks there are for a server and for a client, in which order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from fsl_async.task import Task
from parties.commands.preflight import bulk, compute, files, host, others
from parties.commands.preflight.findings import Check, Doubt, Finding, found, in_thread, loaded
from parties.deployment.connecting import state_beside
from parties.settings.host_file import HostFile, load_party
from parties.settings.party_file import ClientFile, ServerFile
from parties.settings.reading import overrides
from parties.settings.task_file import Deployment

FileT = TypeVar("FileT", bound=ClientFile | ServerFile)


async def preflight(config: Path, environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check all that a server's or a client's file names, and the other parties.

    Args:
        config: the file.
        environment: its variables take precedence over the file.
    """
    finding, file = loaded(
        "configuration",
        partial(load_party, config, environment),
        lambda file: f"{config} is a {'server' if isinstance(file, HostFile) else 'client'}'s file without mistakes",
    )
    if file is None:
        return [finding]
    if isinstance(file, ClientFile):
        return [finding, *await _single(file, environment, _of_client)]
    if file.listed:
        return [finding, *await _several(file, environment)]
    return [finding, *await _single(file.common, environment, _of_server)]


async def _single(
    file: FileT, environment: Mapping[str, str], checks: Callable[[FileT, Deployment], list[tuple[str, Check]]]
) -> list[Finding]:
    """Of a client, or of a server with one task."""
    task, deployment = _task_of(file.task)
    if deployment is None:
        return [task]
    return [task, await _overridden(type(file), environment), *await _all(checks(file, deployment))]


async def _several(host_file: HostFile, environment: Mapping[str, str]) -> list[Finding]:
    """Of a server with several tasks: what they share once, and the rest for each, after its name."""
    together, pairs = loaded("tasks", host_file.deployments, partial(_names))
    if pairs is None:
        return [together]
    file, deployment = pairs[0]
    findings = [together, await _overridden(host_file.kind, environment)]
    findings += await _all(_of_address(file, deployment, [(each, other.task) for each, other in pairs]))
    for own, other in pairs:
        checks = _of_task(own, other)
        findings += await _all([(f"{other.task.name}: {name}", check) for name, check in checks])
    return findings


def _task_of(path: Path) -> tuple[Finding, Deployment | None]:
    return loaded("task", partial(Deployment.load, path), partial(_task, path))


async def _overridden(kind: type[msgspec.Struct], environment: Mapping[str, str]) -> Finding:
    return await found("environment", in_thread(_environment, kind, environment))


async def _all(checks: Iterable[tuple[str, Check]]) -> list[Finding]:
    return [await found(name, check) for name, check in checks]


def _names(pairs: list[tuple[ServerFile, Deployment]]) -> str:
    """The tasks of a server in short; the keys in their files are checked when they are read."""
    each = [f"{deployment.task.name!r}, digest {deployment.task.digest().hex()[:16]}…" for _, deployment in pairs]
    return f"{len(each)}: {'; '.join(each)}"


def _task(path: Path, deployment: Deployment) -> str:
    """The task in short; the servers' keys are checked when they are read.

    Raises:
        MisuseError: a server's keys cannot be read.
    """
    deployment.identities  # noqa: B018 - reading them checks them
    return f"{path}: {deployment.task.name!r}, digest {deployment.task.digest().hex()[:16]}…"


def _of_server(file: ServerFile, deployment: Deployment) -> list[tuple[str, Check]]:
    shared = _of_host(file, deployment, [(file, deployment.task)])
    return [*_of_keys(file, deployment), *_of_task(file, deployment, shared)]


def _of_keys(file: ServerFile, deployment: Deployment) -> list[tuple[str, Check]]:
    return [
        ("keys", in_thread(files.own_keys, file, deployment)),
        ("key folder", in_thread(files.key_folder, file.identity, deployment)),
    ]


def _of_compute(file: ServerFile, deployment: Deployment) -> list[tuple[str, Check]]:
    """Of a server whose sums a cluster computes."""
    if not file.compute:
        return []
    return [
        ("certificates", in_thread(compute.certificates, file)),
        ("confinement", in_thread(compute.confinement)),
        ("workers", partial(compute.workers, file, deployment)),
    ]


def _of_address(
    file: ServerFile, deployment: Deployment, tasks: Sequence[tuple[ServerFile, Task]]
) -> list[tuple[str, Check]]:
    """What several tasks share."""
    return [
        *_of_keys(file, deployment),
        ("disk", in_thread(files.disk_for_all, tasks)),
        *_of_host(file, deployment, tasks),
    ]


def _of_host(
    file: ServerFile, deployment: Deployment, tasks: Sequence[tuple[ServerFile, Task]]
) -> list[tuple[str, Check]]:
    return [
        ("memory", in_thread(host.memory, tasks)),
        ("descriptors", in_thread(host.descriptors, file)),
        ("clock", in_thread(host.clock)),
        ("transport", in_thread(host.transport, file.transport)),
        ("port", partial(host.listening, tasks, deployment.addresses[file.server])),
        ("operator's port", partial(host.operator_port, tasks)),
        ("two hosts", partial(others.separation, deployment)),
        ("two operators", partial(others.operators, deployment)),
    ]


def _of_task(
    file: ServerFile, deployment: Deployment, shared: Sequence[tuple[str, Check]] = ()
) -> list[tuple[str, Check]]:
    """What a task has for itself, and in its midst what it does not share with others."""
    return [
        ("clients", in_thread(files.admission, file, deployment.task)),
        ("model", in_thread(files.model, file, deployment.task)),
        ("rounds", in_thread(files.rounds, file, deployment.task)),
        ("store", partial(files.store, file.store)),
        ("blobs", partial(bulk.blobs, file, deployment, running=files.is_running(file.store))),
        ("disk", in_thread(files.disk, file, deployment.task)),
        *shared,
        *_of_compute(file, deployment),
        ("other server", partial(others.reachable, deployment, file.transport, 1 - file.server)),
    ]


def _of_client(file: ClientFile, deployment: Deployment) -> list[tuple[str, Check]]:
    return [
        ("keys", in_thread(files.client_keys, file)),
        ("key folder", in_thread(files.key_folder, file.identity, deployment)),
        ("token", in_thread(files.token, file)),
        ("state", partial(files.state, file.state or state_beside(file.identity))),
        ("clock", in_thread(host.clock)),
        ("transport", in_thread(host.transport, file.transport)),
        ("two hosts", partial(others.separation, deployment)),
        ("two operators", partial(others.operators, deployment)),
        ("S0", partial(others.server, deployment, file.transport, 0)),
        ("S1", partial(others.server, deployment, file.transport, 1)),
        ("admission", partial(others.acceptance, file)),
    ]


def _environment(kind: type[msgspec.Struct], environment: Mapping[str, str]) -> str:
    """No environment variable overrides a setting of the file."""
    named = [f"{setting.variable} overrides {setting.key}" for setting, _ in overrides(kind, environment)]
    if named:
        raise Doubt("; ".join(named))
    return "no variable overrides a setting of the file"
