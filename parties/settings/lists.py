"""The files in which operators list clients and servers, and how they are changed.

    clients.toml    [[clients]] name, channel, statement      admitted
                    [[revoked]] the same, and when            never again, whatever else says so
    task.toml       [[servers]] address, channel, statement, operator
                    [[revoked]] name, channel, statement, and when

Rules: a name and a key belong to one party; a revoked key cannot be added again, only its revocation can be undone;
comments and order stay when a file changes (see `parties.files.toml`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsl_async.errors import MisuseError
from parties.files.toml import TableFile, edited
from parties.identity.keys import PREFIX_DIGITS, PublicIdentity
from parties.identity.registry import RESERVED

_KEY = re.compile(r"[0-9a-fA-F]{64}")
_KEY_OR_PREFIX = re.compile(rf"({_KEY.pattern}|[0-9a-fA-F]{{{PREFIX_DIGITS}}})…?")


@dataclass(frozen=True)
class Member:
    """A client in a list: its keys as hexadecimal text, and when they were revoked (empty: they are not revoked)."""

    name: str
    channel: str
    statement: str
    revoked_at: str


@dataclass(frozen=True)
class ServerRow:
    """A server in a task file, in the same form; revoked keys have no address."""

    name: str
    address: str
    operator: str
    channel: str
    statement: str
    revoked_at: str


# ---- clients


def list_clients(path: Path) -> list[Member]:
    """All clients of a list, the revoked ones last.

    Raises:
        MisuseError: the file cannot be read.
    """
    file = _existing(path)
    return [_member(table) for name in ("clients", "revoked") for table in file.tables(name)]


def add_clients(path: Path, clients: Sequence[PublicIdentity]) -> int:
    """Add clients to a list, which is created if there is none; all of them or none.

    Returns:
        How many clients the list has now.

    Raises:
        MisuseError: a name or a key is in it already, or revoked.
        StorageError: it cannot be written.
    """
    with edited(path) as file:
        for client in clients:
            _check_new(file, client)
            file.append("clients", _table(client))
        return len(file.tables("clients"))


def revoke_client(path: Path, who: str) -> Member:
    """Revoke a client by name; by its public file, its key or 16 digits of it also one that is not on the list.

    Returns:
        The client as the list has it now.

    Raises:
        MisuseError: there is no such client, or it is revoked already.
        StorageError: the file cannot be written.
    """
    with edited(path) as file:
        stranger = _stranger(who)
        for number, table in enumerate(file.tables("clients")):
            if who == table.get("name") or (stranger and _same_key(stranger, table)):
                file.move("clients", number, "revoked", add={"revoked_at": _now()})
                return _member(file.tables("revoked")[-1])
        if any(who == table.get("name") or _same_key(stranger, table) for table in file.tables("revoked")):
            raise MisuseError(f"{path}: {who} is revoked already")
        if not stranger:
            raise MisuseError(
                f"{path} has no client {who!r}; for one that enrolled with a token give its .pub file, or its channel "
                "key, of which the first 16 digits will do: the server's log has them, and `fsl-async clients list "
                "SERVER.toml --enrolled`"
            )
        file.append("revoked", stranger | {"revoked_at": _now()})
        return _member(file.tables("revoked")[-1])


def undo_revocation(path: Path, name: str) -> Member:
    """Undo a mistaken revocation.

    Raises:
        MisuseError: there is no such revocation, or another client has the name by now.
        StorageError: the file cannot be written.
    """
    with edited(path) as file:
        numbers = [number for number, table in enumerate(file.tables("revoked")) if table.get("name") == name]
        if not numbers:
            raise MisuseError(f"{path} has no revoked client {name!r}")
        table = file.tables("revoked")[numbers[-1]]
        if any(table.get("name") == other.get("name") for other in file.tables("clients")):
            raise MisuseError(f"{path}: another client is called {name!r} by now; revoke that one first")
        if "statement" not in table:  # revoked by its key alone: it was never on the list
            file.remove("revoked", numbers[-1])
            return replace(_member(table), revoked_at="")
        PublicIdentity.from_table(table, f"{path}, revoked {numbers[-1] + 1}")
        file.move("revoked", numbers[-1], "clients", add={}, drop="revoked_at")
        return _member(file.tables("clients")[-1])


def _check_new(file: TableFile, client: PublicIdentity) -> None:
    if client.name in RESERVED:
        raise MisuseError(f"{client.name!r} is the name of a server, not of a client; make keys with another name")
    for table in file.tables("clients"):
        if table.get("name") == client.name or _same_key(_table(client), table):
            raise MisuseError(f"{file.path}: another client has the name {client.name!r} or this key")
    for table in file.tables("revoked"):
        if _same_key(_table(client), table):
            raise MisuseError(
                f"{file.path}: the keys of {client.name!r} are revoked; it needs new ones (`fsl-async keygen`), or, if "
                f"that was a mistake, `fsl-async clients revoke {file.path} {table.get('name')} --undo`"
            )


def _stranger(who: str) -> dict[str, str]:
    """The table for a client given by its public file or channel key; empty if the text is neither."""
    if match := _KEY_OR_PREFIX.fullmatch(who):
        return {"name": f"holder of {who[:PREFIX_DIGITS].lower()}", "channel": match[1].lower()}
    if who.endswith(".pub"):
        return _table(PublicIdentity.load(Path(who)))
    return {}


# ---- servers


def list_servers(path: Path) -> list[ServerRow]:
    """Both servers of a task file, then the keys that were revoked.

    Raises:
        MisuseError: the file cannot be read.
    """
    file = _existing(path)
    rows = [_server_row({"name": f"S{number}"} | table) for number, table in enumerate(file.tables("servers"))]
    return rows + [_server_row(table) for table in file.tables("revoked")]


def add_server(path: Path, number: int, keys: PublicIdentity, address: str = "", operator: str = "") -> ServerRow:
    """Give a server of a task file its keys, and its address and operator where they are given.

    Raises:
        MisuseError: the server has other keys, these belong to the other server or are revoked, or it has no address.
        StorageError: the file cannot be written.
    """
    _existing(path)
    with edited(path) as file:
        _check_server(file, number, keys, address)
        given = {key: value for key, value in (("address", address), ("operator", operator)) if value}
        entry = given | {"channel": keys.channel.hex(), "statement": keys.statement.hex()}
        if number < len(file.tables("servers")):
            file.set("servers", number, entry)
        else:
            file.append("servers", entry)
        return _server_row({"name": f"S{number}"} | file.tables("servers")[number])


def revoke_server(path: Path, number: int) -> ServerRow:
    """Revoke a server's keys; the task file cannot be used until it has new ones.

    Returns:
        The revoked keys.

    Raises:
        MisuseError: the server has no keys.
        StorageError: the file cannot be written.
    """
    _existing(path)
    with edited(path) as file:
        servers = file.tables("servers")
        if not 0 <= number < len(servers) or not _has_keys(servers[number]):
            raise MisuseError(f"{path}: S{number} has no keys to revoke")
        old = {key: servers[number][key] for key in ("channel", "statement")}
        file.set("servers", number, {"channel": "", "statement": ""})
        file.append("revoked", {"name": f"S{number}"} | old | {"revoked_at": _now()})
        return _server_row(file.tables("revoked")[-1])


def _check_server(file: TableFile, number: int, keys: PublicIdentity, address: str) -> None:
    servers, new = file.tables("servers"), _table(keys)
    if number > len(servers):
        raise MisuseError(f"{file.path}: S0 comes first; add its keys before those of S{number}")
    if number == len(servers) and not address:
        raise MisuseError(f"{file.path}: S{number} has no address yet; give it with --address host:port")
    for other, table in enumerate(servers):
        if other != number and _same_key(new, table):
            raise MisuseError(f"{file.path}: these are the keys of S{other}; each server has its own")
    if number < len(servers) and _has_keys(servers[number]) and not _same_key(new, servers[number]):
        raise MisuseError(
            f"{file.path}: S{number} has other keys; `fsl-async peers revoke {file.path} --server {number}` first"
        )
    if any(_same_key(new, table) for table in file.tables("revoked")):
        raise MisuseError(f"{file.path}: these keys are revoked; S{number} needs new ones (`fsl-async keygen`)")


# ---- both


def _existing(path: Path) -> TableFile:
    try:
        return TableFile(path, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error.strerror}") from error


def _table(keys: PublicIdentity) -> dict[str, str]:
    return {"name": keys.name, "channel": keys.channel.hex(), "statement": keys.statement.hex()}


def _same_key(new: dict[str, Any], table: dict[str, Any]) -> bool:
    """Whether two tables have a key in common; one of them may have only its first digits."""
    for key in ("channel", "statement"):
        shorter, longer = sorted((_text(new, key).lower(), _text(table, key).lower()), key=len)
        if len(shorter) >= PREFIX_DIGITS and longer.startswith(shorter):
            return True
    return False


def _has_keys(table: dict[str, Any]) -> bool:
    """Whether a server's table holds keys, and not a placeholder."""
    return bool(_KEY.fullmatch(_text(table, "channel")))


def _member(table: dict[str, Any]) -> Member:
    return Member(*(_text(table, key) for key in ("name", "channel", "statement", "revoked_at")))


def _server_row(table: dict[str, Any]) -> ServerRow:
    keys = ("name", "address", "operator", "channel", "statement", "revoked_at")
    return ServerRow(*(_text(table, key) for key in keys))


def _text(table: dict[str, Any], key: str) -> str:
    value = table.get(key, "")
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
