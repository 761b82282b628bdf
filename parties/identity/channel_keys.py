"""A server's channel key in a file of its own, for its doors.

Who holds it can answer connections as this server, and cannot sign in its name: receipts and outcomes come from the
server itself. The file is kept as that of an `Identity` is: 0600, never overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from nacl.bindings import crypto_scalarmult_base

from fsl_async.errors import MisuseError
from parties.files.toml import parse_toml
from parties.identity.keys import Identity, check_name, hex_key, read_private, write_private

__all__ = ["ChannelKeys"]


@dataclass(frozen=True)
class ChannelKeys:
    """A server's channel key, without the one that signs.

    ChannelKeys.of(Identity.load(Path("s0.key"))).save(Path("s0-doors.key"))
    ChannelKeys.load(Path("s0-doors.key")).public

    Attributes:
        name: the name of the keys that it was taken from.
        secret: the X25519 secret; 32 bytes.
    """

    name: str
    secret: bytes = field(repr=False)

    @staticmethod
    def of(identity: Identity) -> ChannelKeys:
        """The channel key of an identity."""
        return ChannelKeys(identity.name, identity.channel_secret)

    @cached_property
    def public(self) -> bytes:
        """The X25519 public key, as the task file names it."""
        return crypto_scalarmult_base(self.secret)

    def save(self, path: Path) -> None:
        """Write the file, readable by its owner alone.

        Raises:
            MisuseError: the name cannot stand in a file.
            StorageError: a file of that name exists, or it cannot be written.
        """
        check_name(self.name, "channel key")
        write_private(path, f'name = "{self.name}"\nchannel_secret = "{self.secret.hex()}"\n')

    @staticmethod
    def load(path: Path) -> ChannelKeys:
        """Read such a file.

        Raises:
            MisuseError: the file is missing or malformed, is not the user's own, others can read or replace it, or it
                holds the key that signs as well.
        """
        remedy = f"make it with `fsl-async keygen {path.name} --channel-of` and the file of the server's keys"
        table = parse_toml(read_private(path, remedy), str(path))
        if "statement_secret" in table:
            raise MisuseError(
                f"{path} holds the key that signs, too, which a door must not have: whoever breaks into a door could "
                f"sign in the server's name; {remedy}"
            )
        return ChannelKeys(check_name(table.get("name"), str(path)), hex_key(table, "channel_secret", str(path)))
