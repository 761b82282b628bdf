"""Which checks there are for a server and for a client, in which order."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trio

from parties.commands.preflight import files, host, others
from parties.commands.preflight.findings import Check, Doubt, Finding, found, loaded
from parties.deployment.client_state import state_beside
from parties.settings.party_file import ClientFile, PartyFile, ServerFile, load_party
from parties.settings.reading import overrides
from parties.settings.task_file import Deployment

__all__ = ["preflight"]


async def preflight(config: Path, environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Check all that a server's or a client's file names, and the other parties.

    Args:
        config: the file.
        environment: its variables take precedence over the file.
    """
    finding, file = loaded("configuration", partial(load_party, config, environment), partial(_kind_of_file, config))
    if file is None:
        return [finding]
    task_finding, deployment = loaded("task", partial(Deployment.load, file.task), partial(_task, file.task))
    findings = [finding, task_finding]
    if deployment is not None:
        findings.append(await found("environment", _plain(_environment, type(file), environment)))
        checks = _of_server(file, deployment) if isinstance(file, ServerFile) else _of_client(file, deployment)
        findings += [await found(name, check) for name, check in checks]
    return findings


def _kind_of_file(config: Path, file: PartyFile) -> str:
    return f"{config} is a {'server' if isinstance(file, ServerFile) else 'client'}'s file without mistakes"


def _task(path: Path, deployment: Deployment) -> str:
    """The task in short; the servers' keys are checked when they are read.

    Raises:
        MisuseError: a server's keys cannot be read.
    """
    deployment.identities  # noqa: B018 - reading them checks them
    return f"{path}: {deployment.task.name!r}, digest {deployment.task.digest().hex()[:16]}…"


def _of_server(file: ServerFile, deployment: Deployment) -> list[tuple[str, Check]]:
    task, peer = deployment.task, 1 - file.server
    return [
        ("keys", _plain(files.own_keys, file, deployment)),
        ("key folder", _plain(files.key_folder, file.identity, deployment)),
        ("clients", _plain(files.admission, file, task)),
        ("model", _plain(files.model, file, task)),
        ("store", partial(files.store, file.store)),
        ("disk", _plain(files.disk, file, task)),
        ("memory", _plain(host.memory, file, task)),
        ("descriptors", _plain(host.descriptors, file)),
        ("clock", _plain(host.clock)),
        ("port", partial(host.listening, file, deployment.addresses[file.server])),
        ("operator's port", partial(host.operator_port, file)),
        ("two hosts", partial(others.separation, deployment)),
        ("two operators", partial(others.operators, deployment)),
        ("other server", partial(others.reachable, deployment, peer)),
    ]


def _of_client(file: ClientFile, deployment: Deployment) -> list[tuple[str, Check]]:
    return [
        ("keys", _plain(files.client_keys, file)),
        ("key folder", _plain(files.key_folder, file.identity, deployment)),
        ("token", _plain(files.token, file)),
        ("state", partial(files.state, file.state or state_beside(file.identity))),
        ("clock", _plain(host.clock)),
        ("two hosts", partial(others.separation, deployment)),
        ("two operators", partial(others.operators, deployment)),
        ("S0", partial(others.server, deployment, 0)),
        ("S1", partial(others.server, deployment, 1)),
        ("admission", partial(others.acceptance, file)),
    ]


def _plain(check: Callable[..., str], *arguments: Any) -> Check:
    """A check that is not async, in a thread."""
    return partial(trio.to_thread.run_sync, check, *arguments)


def _environment(kind: type[PartyFile], environment: Mapping[str, str]) -> str:
    """No environment variable overrides a setting of the file."""
    named = [f"{setting.variable} overrides {setting.key}" for setting, _ in overrides(kind, environment)]
    if named:
        raise Doubt("; ".join(named))
    return "no variable overrides a setting of the file"
