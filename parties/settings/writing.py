"""The files of a deployment, written: for demonstrations, tests and programs that set parties up themselves."""

from __future__ import annotations

import errno
import json
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.files.disk import refused
from parties.files.toml import read_toml
from parties.identity.keys import PublicIdentity
from parties.settings.reading import from_table


def write_deployment(
    folder: Path,
    task: Task,
    servers: Sequence[PublicIdentity],
    addresses: Sequence[str],
    clients: Iterable[PublicIdentity],
) -> None:
    """Write `task.toml`, for everybody, and `clients.toml`, for the servers, into a folder.

    Args:
        folder: where; the two files are replaced.
        task: what is learnt.
        servers: S0's and S1's public keys.
        addresses: where the two listen, each "host:port".
        clients: who is let in.
    """
    entries = [
        {"address": address, "channel": server.channel.hex(), "statement": server.statement.hex()}
        for server, address in zip(servers, addresses, strict=True)
    ]
    (folder / "task.toml").write_text(to_toml({**_plain(task), "servers": entries}), encoding="utf-8")
    listed = [{"name": c.name, "channel": c.channel.hex(), "statement": c.statement.hex()} for c in clients]
    (folder / "clients.toml").write_text(to_toml({"clients": listed}), encoding="utf-8")


def save_task(path: Path, task: Task) -> None:
    """Write a task's table as TOML; a task file of a deployment has the servers beside it.

    Raises:
        StorageError: it cannot be written.
    """
    try:
        path.write_text(to_toml(_plain(task)), encoding="utf-8")
    except OSError as error:
        raise refused(path, error) from error


def load_task(path: Path) -> Task:
    """Read the task of a file: one that `save_task` wrote, or a deployment's task file.

    Raises:
        MisuseError: it cannot be read, has no table [task], or a key of it is unknown, missing or out of range.
    """
    found = read_toml(path)
    match found.get("task"):
        case dict(table):
            return from_table(table, path, Task, {}, where=f"{path}, [task]")
        case str(named):
            of = "server" if {"server", "listen", "clients"} & found.keys() else "client"
            raise MisuseError(
                f"{path} is a {of}'s file, whose task file is {str(path.parent / named)!r}: give that one"
            )
    raise MisuseError(f"{path} is no task file: it has no table [task]; docs/files.md says what one has")


def _plain(task: Task) -> dict[str, Any]:
    return {"task": {key: value for key, value in msgspec.to_builtins(task).items() if value is not None}}


PORTS = range(10_000, 32_768)
"""Below those from which Linux takes one for a connection."""

_given: set[int] = set()


def free_addresses(count: int) -> list[str]:
    """Addresses on this host that nobody listens at now, drawn at random: for demos and tests.

    Returns:
        Addresses "127.0.0.1:port", each given once in this process. Another may take one before the caller does.
    """
    found: list[str] = []
    while len(found) < count:
        if (port := secrets.choice(PORTS)) not in _given:
            try:
                socket.create_server(("127.0.0.1", port)).close()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                _given.add(port)
                found.append(f"127.0.0.1:{port}")
    return found


def to_toml(table: Mapping[str, Any]) -> str:
    """A table of plain values, tables, and lists of tables, as TOML with every value on a line of its own."""
    lines: list[str] = []
    _write_table(lines, table, ())
    return "\n".join(lines) + "\n"


def _write_table(lines: list[str], table: Mapping[str, Any], path: tuple[str, ...]) -> None:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict | list | tuple)}
    lines.extend(f"{key} = {json.dumps(value)}" for key, value in plain.items())
    for key, value in table.items():
        inner = ".".join((*path, key))
        if isinstance(value, dict):
            lines.append(f"\n[{inner}]")
            _write_table(lines, value, (*path, key))
        elif key not in plain:
            for item in value:
                lines.append(f"\n[[{inner}]]")
                _write_table(lines, item, (*path, key))
