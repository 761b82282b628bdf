"""The task file: what all parties share, the task and both servers' addresses and public keys."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.identity.keys import PublicIdentity
from parties.settings.reading import load


class ServerEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server's public entry; the operator's name is for people."""

    address: str
    channel: str
    statement: str
    operator: str = ""


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
