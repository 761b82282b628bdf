"""`clients`: which clients a server admits."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from cyclopts import App

from fsl_async.errors import MisuseError
from parties.commands.member_tables import check_public, columns, short
from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["clients"]

clients = App(name="clients", help="Add, list and revoke the clients that a server admits; no restart is needed.")


@clients.command(name="list")
def list_of_clients(file: Path, *, enrolled: bool = False, task: str = "", form: FormatFlag = "text") -> int:
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
    report = Report("clients list", form)

    def work() -> None:
        from parties.deployment.enrolled_clients import list_enrolled
        from parties.settings.host_file import task_settings
        from parties.settings.lists import list_clients

        members = list_enrolled(task_settings(file, task)) if enrolled else list_clients(file)
        rows = [[one.name, short(one.channel), short(one.statement), one.revoked_at] for one in members]
        report.result(
            columns(["name", "channel key", "statement key", "revoked"], rows),
            {"file": str(file), "clients": [asdict(one) for one in members]},
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
    report = Report("clients add", form)

    def work() -> None:
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

    return run_plainly(report, work)


@clients.command(name="revoke")
def revoke_of_clients(file: Path, who: str, *, undo: bool = False, form: FormatFlag = "text") -> int:
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
    report = Report("clients revoke", form)

    def work() -> None:
        from parties.settings.lists import revoke_client, undo_revocation

        member = undo_revocation(file, who) if undo else revoke_client(file, who)
        done = "let in again" if undo else "revoked; its connections end within a second"
        report.result(
            f"{file}: {member.name}, key {short(member.channel)}, is {done}",
            {"file": str(file), "client": asdict(member)},
        )

    return run_plainly(report, work)
