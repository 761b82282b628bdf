"""Who listens at a port of this host, as far as the system tells: /proc/net/tcp and /proc/net/tcp6 of Linux."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["ListeningSocket", "listening_sockets", "users_at"]

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTEN = "0A"
_LOCAL, _STATE, _USER, _INODE = 1, 3, 7, 9


class ListeningSocket(NamedTuple):
    """A listening TCP socket: its port, its user's number, and the number by which processes' descriptors name it."""

    port: int
    user: int
    inode: int


def listening_sockets() -> list[ListeningSocket]:
    """All listening TCP sockets of this host (of this network namespace); none where the system does not tell."""
    return [found for table in _TABLES for found in _read(table)]


def users_at(port: int) -> set[int]:
    """The users whose processes listen at a port."""
    return {found.user for found in listening_sockets() if found.port == port}


def _read(table: Path) -> Iterator[ListeningSocket]:
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for columns in map(str.split, lines):
        if columns[_STATE] == _LISTEN:
            port = int(columns[_LOCAL].rpartition(":")[2], 16)
            yield ListeningSocket(port, int(columns[_USER]), int(columns[_INODE]))
