"""`[doors]` of a server's file: processes that take its clients' connections, so that the server itself has less to do.

Rules: a door holds the server's channel key and not the key that signs; where a server has doors, clients are theirs,
and the server listens for its doors at `core` and, if it is S0, for the other server at `link`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.wire.door_messages import MOST_DOORS
from parties.settings.reading import About, InMemory
from transport.socket_transport import check_address
from transport.tcp import require_shared_ports, split_address
from transport.unix import SCHEME

if TYPE_CHECKING:
    from parties.settings.party_file import ServerFile
    from parties.settings.task_file import Deployment

__all__ = ["DoorsTable", "check_doors", "check_link"]


class DoorsTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Processes that take clients' connections for this server; without `core` there are none."""

    core: Annotated[
        str,
        About(
            "where the server takes its doors: unix:/path on this host, or host:port for doors on other hosts; the "
            "channels between them are authenticated and encrypted in either case"
        ),
    ] = ""
    keys: Annotated[
        Path | None,
        About(
            "the file of the server's channel key alone, without the key that signs, made by `fsl-async keygen "
            "s0-doors.key --channel-of s0.key`"
        ),
    ] = None
    count: Annotated[
        int,
        About(
            "doors that `serve` starts with itself on this host, all of which listen at `listen`; 0: doors are started "
            "by themselves, on this host or on others",
            low=0,
            high=MOST_DOORS,
        ),
    ] = 0
    link: Annotated[
        str,
        About(
            "at S0: the address to listen at for S1, as `listen` is for clients; the task file names it to S1, as the "
            "link of S0"
        ),
    ] = ""

    def __bool__(self) -> bool:
        """Whether there are doors."""
        return bool(self.core)


def check_doors(file: ServerFile, where: str) -> None:
    """Refuse a table that is not whole, and addresses that would be in each other's way.

    Raises:
        MisuseError: there is such a thing; or this system cannot share a port among several processes.
    """
    doors = file.doors
    if not doors:
        _refuse_rest(doors, where)
        return
    if doors.keys is None:
        raise MisuseError(
            f"{where}: doors.keys is missing: doors need the server's channel key in a file of its own; make it with "
            f"`fsl-async keygen {file.identity.stem}-doors.key --channel-of {file.identity.name}`"
        )
    if doors.keys == file.identity:
        raise MisuseError(
            f"{where}: doors.keys names the same file as identity, which also holds the key that signs; doors must not "
            f"have that: `fsl-async keygen {file.identity.stem}-doors.key --channel-of {file.identity.name}`"
        )
    if file.transport:
        raise MisuseError(
            f"{where}: transport = {file.transport!r} cannot be used with [doors], which listen at TCP ports or "
            "Unix-domain sockets; remove one of the two"
        )
    if isinstance(file.store, InMemory):
        raise MisuseError(
            f'{where}: store = "memory" cannot be used with [doors]: doors are processes of their own, which share no '
            'memory with the server; name a file, such as store = "s0.sqlite"'
        )
    if file.server == 1 and doors.link:
        raise MisuseError(f"{where}: doors.link is S0's alone: S1 dials S0, and listens for no server; remove it")
    if file.server == 0 and not doors.link:
        raise MisuseError(
            f"{where}: doors.link is missing: S1 comes to S0's core and to none of its doors, so S0 listens for it at "
            'another address than for clients, such as link = "0.0.0.0:7100"'
        )
    _check_addresses(file, where)


def check_link(file: ServerFile, deployment: Deployment) -> None:
    """Refuse a task file that sends S1 where S0 does not take it.

    Raises:
        MisuseError: S0 has doors and the task file names no link of it, or the other way round.
    """
    if file.server == 1:
        return
    named = deployment.servers[0].link
    if file.doors and not named:
        raise MisuseError(
            f"{file.task}: S0 has doors, and so needs a link, the address at which S1 reaches its core (doors.link = "
            f'"{file.doors.link}" here); write it with `fsl-async peers add {file.task} s0.pub --server 0 --link '
            "HOST:PORT` and give the file to S1"
        )
    if named and not file.doors:
        raise MisuseError(
            f'{file.task}: S1 would dial S0 at link = "{named}", where only a server with [doors] listens; add [doors] '
            "to the server's file, or remove the link from the task file, at both servers"
        )


def _refuse_rest(doors: DoorsTable, where: str) -> None:
    for key in ("count", "keys", "link"):
        if getattr(doors, key):
            raise MisuseError(
                f"{where}: doors.{key} is given and doors.core is not, so that there are no doors; name where the "
                'server takes them, such as core = "unix:/run/fsl-async/s0/core"'
            )


def _check_addresses(file: ServerFile, where: str) -> None:
    doors = file.doors
    taken = {"listen": file.listen}
    for key, address in (("doors.core", doors.core), ("doors.link", doors.link)):
        if not address:
            continue
        try:
            check_address(address)
        except MisuseError as error:
            raise MisuseError(f"{where}: {key} = {error}") from error
        for other, place in taken.items():
            if _same_place(address, place):
                raise MisuseError(
                    f"{where}: {key} = {address!r} is where {other} = {place!r} is; a server with doors has an address "
                    "for clients, one for its doors, and at S0 one for the other server"
                )
        taken[key] = address
    for key, address in taken.items():
        if not address.startswith(SCHEME) and split_address(address)[1] == 0:
            raise MisuseError(
                f"{where}: {key} = {address!r}: the system would choose a port that nobody else knows; give it a number"
            )
    if file.listen.startswith(SCHEME):
        if doors.count > 1:
            raise MisuseError(
                f"{where}: doors.count = {doors.count}: one process alone can listen at {file.listen}; doors share a "
                "TCP port, or set count = 1"
            )
    else:
        require_shared_ports()


def _same_place(one: str, other: str) -> bool:
    """Whether two addresses cannot both be listened at: the same path, or the same port at hosts that overlap."""
    if one.startswith(SCHEME) or other.startswith(SCHEME):
        return one == other
    (host, port), (other_host, other_port) = split_address(one), split_address(other)
    everywhere = {"0.0.0.0", "::"}  # noqa: S104 - to compare with
    return port == other_port != 0 and (host == other_host or bool({host, other_host} & everywhere))
