"""`peers`: the servers' keys in a task file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cyclopts import App

from fsl_async.errors import MisuseError
from parties.commands.member_tables import check_public, columns, short
from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["peers"]

peers = App(name="peers", help="Add, list and revoke the servers' keys in a task file.")


@peers.command(name="list")
def list_of_peers(task: Path, *, form: FormatFlag = "text") -> int:
    """List both servers, then the keys that have been revoked.

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
            [one.name, one.address, one.operator, short(one.channel), short(one.statement), one.revoked_at]
            for one in servers
        ]
        report.result(
            columns(["name", "address", "operator", "channel key", "statement key", "revoked"], rows),
            {"file": str(task), "servers": [asdict(one) for one in servers]},
        )

    return run_plainly(report, work)


@peers.command(name="add")
def add_to_peers(
    task: Path, public: Path, *, server: int, address: str = "", operator: str = "", form: FormatFlag = "text"
) -> int:
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
    report = Report("peers add", form)

    def work() -> None:
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

    return run_plainly(report, work)


@peers.command(name="revoke")
def revoke_of_peers(task: Path, *, server: int, form: FormatFlag = "text") -> int:
    """Revoke a server's keys in a task file; the file cannot be used until `peers add` writes new ones.

    Parameters
    ----------
    task:
        The task file.
    server:
        Which server: 0 or 1.
    """
    report = Report("peers revoke", form)

    def work() -> None:
        from parties.settings.lists import revoke_server

        _check_number(server)
        row = revoke_server(task, server)
        report.result(
            f"{task}: the channel key {short(row.channel)} of {row.name} is revoked; it needs new ones, and everybody "
            "the new file",
            {"file": str(task), "server": asdict(row)},
        )

    return run_plainly(report, work)


def _check_number(server: int) -> None:
    if server not in (0, 1):
        raise MisuseError(f"server: 0 or 1 expected, got {server}")


def _check_address(address: str) -> None:
    from parties.commands.preflight.host import host_and_port

    if address:
        host_and_port(address)
