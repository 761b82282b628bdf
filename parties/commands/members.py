"""`clients` and `peers`: who a server lets in, and whose keys stand in the task file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from fsl_async.errors import MisuseError
from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

if TYPE_CHECKING:
    from parties.settings.lists import Member, ServerRow

__all__ = ["clients", "peers"]

clients = App(name="clients", help="Add, list and revoke the clients that a server lets in; no restart is needed.")
peers = App(name="peers", help="Add, list and revoke the servers' keys in a task file.")


@clients.command(name="list")
def list_of_clients(file: Path, *, enrolled: bool = False, form: FormatFlag = "text") -> int:
    """List the clients of a file, the revoked ones last; or those who have enrolled with a server by themselves.

    Parameters
    ----------
    file:
        The list that a server's file names under `clients`; with --enrolled, the server's own file.
    enrolled:
        List who has enrolled, with a token or where enrolment is open, as the server's store has it; the server may
        run meanwhile.
    """
    report = Report("clients list", form)

    def work() -> None:
        from parties.deployment.enrolled_clients import list_enrolled
        from parties.settings.lists import list_clients
        from parties.settings.party_file import ServerFile

        members = list_enrolled(ServerFile.load(file)) if enrolled else list_clients(file)
        rows = [[one.name, _short(one.channel), _short(one.statement), one.revoked_at] for one in members]
        report.result(
            _columns(["name", "channel key", "statement key", "revoked"], rows),
            {"file": str(file), "clients": [_plain(one) for one in members]},
        )

    return run_plainly(report, work)


@clients.command(name="add")
def add_to_clients(
    file: Path,
    /,
    *public: Path,
    name: str = "",
    channel: str = "",
    statement: str = "",
    form: FormatFlag = "text",
) -> int:
    """Add clients: by their .pub files, or one by its name and keys. Do the same at the other server.

    Parameters
    ----------
    file:
        The list that a server's file names under `clients`; made if there is none.
    public:
        The .pub files that `fsl-async keygen` wrote.
    name:
        Instead of a file: the client's name,
    channel:
        its channel key, 64 hexadecimal digits,
    statement:
        and its statement key, likewise.
    """
    report = Report("clients add", form)

    def work() -> None:
        from parties.identity.keys import PublicIdentity
        from parties.settings.lists import add_clients

        _check_public(*public)
        told = {"name": name, "channel": channel, "statement": statement}
        if bool(public) == any(told.values()):
            raise MisuseError("clients add: .pub files, or --name, --channel and --statement, expected")
        new = [PublicIdentity.load(path) for path in public] or [PublicIdentity.from_table(told, "clients add")]
        total = add_clients(file, new)
        names = [client.name for client in new]
        report.result(
            f"{file}: added {', '.join(names)}; {total} clients. A running server takes them in within a second",
            {"file": str(file), "added": names, "clients": total},
        )

    return run_plainly(report, work)


@clients.command(name="revoke")
def revoke_of_clients(file: Path, who: str, *, undo: bool = False, form: FormatFlag = "text") -> int:
    """Revoke a client's keys: it is let in no more, and loses its connection. Do the same at the other server.

    What it has submitted by then stays in its round.

    Parameters
    ----------
    file:
        The list that a server's file names under `clients`.
    who:
        The client's name; where it is not on the list, but enrolled with a token, its .pub file, its channel key or the
        first 16 digits of that, as the server's log and `clients list SERVER.toml --enrolled` show them.
    undo:
        Take the revocation of the client of that name back: it was a mistake. One that was revoked by its key alone is
        called as `clients list` has it, "holder of" and 16 digits.
    """
    report = Report("clients revoke", form)

    def work() -> None:
        from parties.settings.lists import revoke_client, take_back

        member = take_back(file, who) if undo else revoke_client(file, who)
        done = "let in again" if undo else "revoked; its connections end within a second"
        report.result(
            f"{file}: {member.name}, key {_short(member.channel)}, is {done}",
            {"file": str(file), "client": _plain(member)},
        )

    return run_plainly(report, work)


@peers.command(name="list")
def list_of_peers(task: Path, *, form: FormatFlag = "text") -> int:
    """List both servers, and the keys that were revoked.

    Parameters
    ----------
    task:
        The task file.
    """
    report = Report("peers list", form)

    def work() -> None:
        from parties.settings.lists import list_servers

        servers = list_servers(task)
        rows = [
            [one.name, one.address, one.operator, _short(one.channel), _short(one.statement), one.revoked_at]
            for one in servers
        ]
        report.result(
            _columns(["name", "address", "operator", "channel key", "statement key", "revoked"], rows),
            {"file": str(task), "servers": [_plain(one) for one in servers]},
        )

    return run_plainly(report, work)


@peers.command(name="add")
def add_to_peers(
    task: Path, public: Path, *, server: int, address: str = "", operator: str = "", form: FormatFlag = "text"
) -> int:
    """Give a server its keys in a task file; everybody needs the same file afterwards.

    Parameters
    ----------
    task:
        The task file.
    public:
        The server's .pub file.
    server:
        Which of the two: 0 or 1.
    address:
        Where it listens, host:port; without it the address stays.
    operator:
        Who runs it, for people; without it that stays.
    """
    report = Report("peers add", form)

    def work() -> None:
        from parties.identity.keys import PublicIdentity
        from parties.settings.lists import add_server

        _check_number(server)
        _check_public(public)
        _check_address(address)
        row = add_server(task, server, PublicIdentity.load(public), address, operator)
        report.result(
            f"{task}: {row.name} at {row.address} has channel key {_short(row.channel)}; give the file to everybody",
            {"file": str(task), "server": _plain(row)},
        )

    return run_plainly(report, work)


@peers.command(name="revoke")
def revoke_of_peers(task: Path, *, server: int, form: FormatFlag = "text") -> int:
    """Revoke a server's keys in a task file, which is of no use until `peers add` gives it new ones.

    Parameters
    ----------
    task:
        The task file.
    server:
        Which of the two: 0 or 1.
    """
    report = Report("peers revoke", form)

    def work() -> None:
        from parties.settings.lists import revoke_server

        _check_number(server)
        row = revoke_server(task, server)
        report.result(
            f"{task}: the channel key {_short(row.channel)} of {row.name} is revoked; it needs new ones, and everybody "
            "the new file",
            {"file": str(task), "server": _plain(row)},
        )

    return run_plainly(report, work)


def _check_number(server: int) -> None:
    if server not in (0, 1):
        raise MisuseError(f"server: 0 or 1 expected, got {server}")


def _check_public(*paths: Path) -> None:
    for path in paths:
        if path.suffix == ".key":
            raise MisuseError(f"{path} has secret keys, which are for its owner alone; give the .pub file beside it")


def _check_address(address: str) -> None:
    from parties.commands.preflight.host import host_and_port

    if address:
        host_and_port(address)


def _short(key: str) -> str:
    """The beginning of a key, enough to tell keys apart."""
    return f"{key[:16]}…" if len(key) > 16 else key


def _plain(row: Member | ServerRow) -> dict[str, str]:
    return asdict(row)


def _columns(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table for people, a row a line."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (names, *rows)]
    return "\n".join(line.rstrip() for line in lines)
