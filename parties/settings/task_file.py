"""The task file: what all parties share, the task and both servers' addresses and public keys."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.identity.keys import PublicIdentity
from parties.settings.reading import load

__all__ = ["Deployment", "RevokedKeys", "ServerEntry", "check_link"]


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server's public entry.

    Attributes:
        address: where it takes clients.
        channel: the public key of its channels, in hexadecimal digits.
        statement: the public key of its signatures, likewise.
        operator: who runs it, for people.
        link: where it takes the other server, if that is elsewhere: at a server with doors.
    """

    address: str
    channel: str
    statement: str
    operator: str = ""
    link: str = ""


class RevokedKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The revoked keys of a server."""

    name: str
    channel: str
    statement: str
    revoked_at: datetime


class Deployment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task file."""

    task: Task
    servers: tuple[ServerEntry, ServerEntry]
    revoked: tuple[RevokedKeys, ...] = ()

    @staticmethod
    def load(path: Path) -> Deployment:
        """Read a task file.

        Raises:
            MisuseError: it is missing, not TOML, a field is unknown, missing or out of range, or a server's keys are
                revoked.
        """
        deployment = load(path, Deployment, {})
        for index, server in enumerate(deployment.servers):
            if server.channel.lower() in {keys.channel.lower() for keys in deployment.revoked} or not server.channel:
                raise MisuseError(
                    f"{path}: the keys of S{index} have been revoked; get the new ones from its operator, and "
                    f"`fsl-async peers add {path} S{index}.pub --server {index}`"
                )
            check_link(path, index, server.link, server.address)
        return deployment

    def identity(self, index: int) -> PublicIdentity:
        """A server's public keys."""
        entry = self.servers[index]
        table = {"name": f"S{index}", "channel": entry.channel, "statement": entry.statement}
        return PublicIdentity.from_table(table, f"the task file, servers[{index}]")

    @property
    def identities(self) -> tuple[PublicIdentity, PublicIdentity]:
        """Both servers' public keys."""
        return self.identity(0), self.identity(1)

    @property
    def addresses(self) -> tuple[str, str]:
        """Where the servers listen."""
        return self.servers[0].address, self.servers[1].address

    @property
    def link(self) -> str:
        """Where S1 reaches S0."""
        return self.servers[0].link or self.servers[0].address


def check_link(path: Path, index: int, link: str, address: str) -> None:
    """Refuse a link that is none.

    Raises:
        MisuseError: it is S1's, which dials; or the address of clients, where doors listen.
    """
    if link and index == 1:
        raise MisuseError(f"{path}: S1 has a link, and nobody uses it: S1 dials S0; remove it")
    if link and link == address:
        raise MisuseError(
            f"{path}: the link of S0, {link}, is its address for clients, where its doors listen; the link is "
            "where its core takes S1: another port"
        )
