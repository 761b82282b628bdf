"""The clients that an operator lists, and the keys that are revoked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsl_async.errors import MisuseError
from parties.files.toml import read_toml
from parties.identity.keys import PREFIX_DIGITS, PublicIdentity, channel_key, check_name

RESERVED = ("S0", "S1")
"""The servers' names, which no client can have."""

_PREFIX = re.compile(f"[0-9a-fA-F]{{{PREFIX_DIGITS}}}")


@dataclass(frozen=True)
class Revocation:
    """A channel key that is not admitted any more: whose it was, and when it was revoked (empty if that is not known).

    The key may be shortened to its first bytes, as a log shows them; then no key that begins with them is admitted.
    """

    name: str
    channel: bytes
    revoked_at: str

    @staticmethod
    def from_table(table: Mapping[str, Any], source: str) -> Revocation:
        """Read a table with `name`, `channel` and `revoked_at`.

        Raises:
            MisuseError: name or key is missing, or is not what it should be.
        """
        name = check_name(table.get("name"), source)
        moment = table.get("revoked_at", "")
        if _PREFIX.fullmatch(str(table.get("channel"))):
            return Revocation(name, bytes.fromhex(table["channel"]), str(moment))
        return Revocation(name, channel_key(table, source), str(moment))


class Registry:
    """The clients that a server admits, by the keys of their channels.

    Args:
        clients: the clients that are admitted.
        revoked: keys that are not admitted, even if they are among the clients.

    Raises:
        MisuseError: two clients have the same name or the same key.
    """

    def __init__(self, clients: Iterable[PublicIdentity] = (), revoked: Iterable[Revocation] = ()) -> None:
        self._by_channel: dict[bytes, PublicIdentity] = {}
        self._by_name: dict[str, PublicIdentity] = {}
        self._revoked = {revocation.channel: revocation for revocation in revoked}
        self._revoked_names = {revocation.name for revocation in self._revoked.values()}
        for client in clients:
            if self.revocation(client.channel) is None:
                self.add(client)

    def add(self, client: PublicIdentity) -> None:
        """Admit a client.

        Raises:
            MisuseError: another client has the same name or the same key.
        """
        known = {self._by_name.get(client.name, client), self._by_channel.get(client.channel, client)}
        if known != {client}:
            raise MisuseError(f"client {client.name!r}: another client has this name or this key")
        self._by_name[client.name] = self._by_channel[client.channel] = client

    def by_channel(self, key: bytes) -> PublicIdentity | None:
        """The client that holds a channel key."""
        return self._by_channel.get(key)

    def by_name(self, name: str) -> PublicIdentity | None:
        """The client of that name."""
        return self._by_name.get(name)

    def revocation(self, key: bytes) -> Revocation | None:
        """The revocation of a channel key."""
        return self._revoked.get(key) or self._revoked.get(key[: PREFIX_DIGITS // 2])

    def was_revoked(self, name: str) -> bool:
        """Whether keys of a client with that name were revoked."""
        return name in self._revoked_names

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[PublicIdentity]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    @staticmethod
    def load(path: Path) -> Registry:
        """Read a file with one `[[clients]]` table per client, and a `[[revoked]]` one per key that is revoked.

        Raises:
            MisuseError: it cannot be read, or a table is not what it should be.
        """
        table = read_toml(path)
        clients, revoked = table.get("clients", []), table.get("revoked", [])
        if set(table) - {"clients", "revoked"} or not (_are_tables(clients) and _are_tables(revoked)):
            raise MisuseError(f"{path}: only [[clients]] and [[revoked]] tables expected")
        listed = [PublicIdentity.from_table(entry, f"{path}, client {i}") for i, entry in enumerate(clients, start=1)]
        gone = [Revocation.from_table(entry, f"{path}, revoked {i}") for i, entry in enumerate(revoked, start=1)]
        try:
            return Registry(listed, gone)
        except MisuseError as error:
            raise MisuseError(f"{path}: {error}") from error


def _are_tables(entries: Any) -> bool:
    return isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
