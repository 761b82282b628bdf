"""`clients` and `peers`: which clients a server admits, and the servers' keys in a task file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from cyclopts import App

from fsl_async.errors import MisuseError
from parties.commands.report import Report, reported


def check_public(*paths: Path) -> None:
    """Refuse a file of secret keys where public ones are expected.

    Raises:
        MisuseError: one of the files has secret keys.
    """
    for path in paths:
        if path.suffix == ".key":
            raise MisuseError(f"{path} has secret keys, which are for its owner alone; give the .pub file beside it")


def short(key: str) -> str:
    """The beginning of a key, enough to tell keys apart."""
    return f"{key[:16]}…" if len(key) > 16 else key


def columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for people, a row a line."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (names, *rows)]
    return "\n".join(line.rstrip() for line in lines)


clients = App(name="clients", help="Add, list and revoke the clients that a server admits; no restart is needed.")


@clients.command(name="list")
@reported("clients list")
def list_of_clients(report: Report, file: Path, *, enrolled: bool = False, task: str = "") -> None:
    """List the clients in a file, the revoked ones last; or, with --enrolled, those that enrolled by themselves.

    Parameters
    ----------
    file:
        The list that a server's file names under `clients`; with --enrolled, the server's own file.
    enrolled:
        List the clients that have enrolled with a token, or without one where enrolment is open. They are read from the
        server's store; the server may be running.
    task:
        With --enrolled, the name of the task; needed where the server has several.
    """
    from parties.deployment.enrolled_clients import list_enrolled
    from parties.settings.host_file import task_settings
    from parties.settings.lists import list_clients

    members = list_enrolled(task_settings(file, task)) if enrolled else list_clients(file)
    rows = [[one.name, short(one.channel), short(one.statement), one.revoked_at] for one in members]
    report.result(
        columns(["name", "channel key", "statement key", "revoked"], rows),
        {"file": str(file), "clients": [asdict(one) for one in members]},
    )


@clients.command(name="add")
@reported("clients add")
def add_to_clients(
    report: Report,
    file: Path,
    /,
    *public: Path,
    name: str = "",
    channel: str = "",
    statement: str = "",
) -> None:
    """Add clients to the list: by their .pub files, or one client by name and keys. Do the same at the other server.

    Parameters
    ----------
    file:
        The list that a server's file names under `clients`; it is created if it does not exist.
    public:
        The .pub files that `fsl-async keygen` wrote.
    name:
        Without a .pub file: the client's name; give --channel and --statement with it.
    channel:
        Without a .pub file: the client's channel key, 64 hexadecimal digits.
    statement:
        Without a .pub file: the client's statement key, 64 hexadecimal digits.
    """
    from parties.identity.keys import PublicIdentity
    from parties.settings.lists import add_clients

    check_public(*public)
    told = {"name": name, "channel": channel, "statement": statement}
    if bool(public) == any(told.values()):
        raise MisuseError(".pub files, or --name, --channel and --statement, expected")
    new = [PublicIdentity.load(path) for path in public] or [PublicIdentity.from_table(told, "the new client")]
    total = add_clients(file, new)
    names = [client.name for client in new]
    report.result(
        f"{file}: added {', '.join(names)}; {total} clients. A running server takes them in within a second",
        {"file": str(file), "added": names, "clients": total},
    )


@clients.command(name="revoke")
@reported("clients revoke")
def revoke_of_clients(report: Report, file: Path, who: str, *, undo: bool = False) -> None:
    """Revoke a client's keys: it is not admitted any more, and is disconnected. Do the same at the other server.

    What the client has already submitted stays in its round.

    Parameters
    ----------
    file:
        The list that a server's file names under `clients`.
    who:
        The client's name. For a client that enrolled with a token and is not on the list: its .pub file, its channel
        key, or the first 16 digits of that key, which the server's log and `clients list SERVER.toml --enrolled` show.
    undo:
        Undo a mistaken revocation of the client with that name. A client that was revoked by its key alone is called
        "holder of" and 16 digits, as `clients list` shows it.
    """
    from parties.settings.lists import revoke_client, undo_revocation

    member = undo_revocation(file, who) if undo else revoke_client(file, who)
    done = "let in again" if undo else "revoked; its connections end within a second"
    report.result(
        f"{file}: {member.name}, key {short(member.channel)}, is {done}",
        {"file": str(file), "client": asdict(member)},
    )


peers = App(name="peers", help="Add, list and revoke the servers' keys in a task file.")


@peers.command(name="list")
@reported("peers list")
def list_of_peers(report: Report, task: Path) -> None:
    """List both servers, then the keys that have been revoked.

    Parameters
    ----------
    task:
        The task file.
    """
    from parties.settings.lists import list_servers

    servers = list_servers(task)
    rows = [
        [one.name, one.address, one.operator, short(one.channel), short(one.statement), one.revoked_at]
        for one in servers
    ]
    report.result(
        columns(["name", "address", "operator", "channel key", "statement key", "revoked"], rows),
        {"file": str(task), "servers": [asdict(one) for one in servers]},
    )


@peers.command(name="add")
@reported("peers add")
def add_to_peers(
    report: Report, task: Path, public: Path, *, server: int, address: str = "", operator: str = ""
) -> None:
    """Write a server's keys into a task file; afterwards all parties need the new file.

    Parameters
    ----------
    task:
        The task file.
    public:
        The server's .pub file.
    server:
        Which server: 0 or 1.
    address:
        Where the server listens, host:port; if left out, the address stays as it is.
    operator:
        Who runs the server, for people to read; if left out, it stays as it is.
    """
    from parties.identity.keys import PublicIdentity
    from parties.settings.lists import add_server

    _check_number(server)
    check_public(public)
    _check_address(address)
    row = add_server(task, server, PublicIdentity.load(public), address, operator)
    report.result(
        f"{task}: {row.name} at {row.address} has channel key {short(row.channel)}; give the file to everybody",
        {"file": str(task), "server": asdict(row)},
    )


@peers.command(name="revoke")
@reported("peers revoke")
def revoke_of_peers(report: Report, task: Path, *, server: int) -> None:
    """Revoke a server's keys in a task file; the file cannot be used until `peers add` writes new ones.

    Parameters
    ----------
    task:
        The task file.
    server:
        Which server: 0 or 1.
    """
    from parties.settings.lists import revoke_server

    _check_number(server)
    row = revoke_server(task, server)
    report.result(
        f"{task}: the channel key {short(row.channel)} of {row.name} is revoked; it needs new ones, and everybody "
        "the new file",
        {"file": str(task), "server": asdict(row)},
    )


def _check_number(server: int) -> None:
    if server not in (0, 1):
        raise MisuseError(f"server: 0 or 1 expected, got {server}")


def _check_address(address: str) -> None:
    from transport.socket_transport import check_address

    if address:
        check_address(address)
