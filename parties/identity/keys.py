"""Who a party is: two key pairs and a secret for noise, each for one use.

X25519 authenticates the channel, Ed25519 signs statements (receipts, outcomes), and from the third secret a server
derives its noise; a client has no use for that one. Secret keys hide from `repr`; only
their owner can read their file (0600), which is in a folder that not everybody can write, and is never overwritten.
The checks are made on the open file that is read, not on its name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from nacl.bindings import crypto_scalarmult_base
from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

from fsl_async.config import ServerKeys
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError, StorageError
from fsl_async.foreign_text import LONGEST_NAME, is_name
from fsl_async.randomness import Randomness
from parties.files.disk import exists
from parties.files.toml import parse_toml, read_toml
from transport.noise import is_public_key

PREFIX_DIGITS = 16
"""How many hexadecimal digits of a public key are shown where there is no room for all 64."""


@dataclass(frozen=True)
class PublicIdentity:
    """What others know of a party: its name and its two public keys.

    Attributes:
        name: of 1 to 64 printable characters; S0 and S1 are the servers'.
        channel: the X25519 key of its channels; 32 bytes.
        statement: the Ed25519 key that its signatures are checked with; 32 bytes.
    """

    name: str
    channel: bytes
    statement: bytes

    @property
    def keys(self) -> ServerKeys:
        """The two public keys as they stand in a round's configuration."""
        return ServerKeys(self.channel, self.statement)

    def digest(self) -> bytes:
        """BLAKE2b-256 of name and keys: how a submission names its client."""
        return digest(Domain.IDENTITY, self.name.encode(), self.channel, self.statement)

    def to_toml(self) -> str:
        """The text of a public identity's file."""
        return f'name = "{self.name}"\nchannel = "{self.channel.hex()}"\nstatement = "{self.statement.hex()}"\n'

    @staticmethod
    def from_table(table: Mapping[str, Any], source: str) -> PublicIdentity:
        """Read a table with `name`, `channel` and `statement`.

        Raises:
            MisuseError: a field is missing, or is not what it should be.
        """
        name = check_name(table.get("name"), source)
        channel, statement = channel_key(table, source), _hex_key(table, "statement", source)
        return PublicIdentity(name, channel, statement)

    @staticmethod
    def load(path: Path) -> PublicIdentity:
        """Read a public identity's file."""
        return PublicIdentity.from_table(read_toml(path), str(path))


@dataclass(frozen=True)
class Identity:
    """A party's own keys, which no other party learns.

    identity = Identity.generate("alice")
    public_file = identity.save_both(Path("alice.key"))     # the secret file, and beside it alice.pub
    Identity.load(Path("alice.key")).public                 # what others are given: a `PublicIdentity`
    """

    name: str
    channel_secret: bytes = field(repr=False)
    statement_secret: bytes = field(repr=False)
    noise_secret: bytes = field(repr=False)

    @staticmethod
    def generate(name: str, randomness: Randomness = os.urandom) -> Identity:
        """Make a new identity."""
        return Identity(name, *(randomness(32) for _ in _SECRETS))

    @cached_property
    def public(self) -> PublicIdentity:
        """What others may know."""
        channel = crypto_scalarmult_base(self.channel_secret)
        return PublicIdentity(self.name, channel, bytes(self._signer.verify_key))

    def sign(self, domain: Domain, *parts: bytes) -> bytes:
        """Sign a statement: 64 bytes."""
        return bytes(self._signer.sign(digest(domain, *parts)).signature)

    @cached_property
    def _signer(self) -> SigningKey:
        """The expanded statement key; expanding it takes as long as a signature."""
        return SigningKey(self.statement_secret)

    def save(self, path: Path) -> None:
        """Write the secret file, readable by its owner alone.

        Raises:
            MisuseError: the name cannot stand in a file.
            StorageError: a file of that name exists, or it cannot be written.
        """
        check_name(self.name, "identity")
        _create(
            path,
            f'name = "{self.name}"\n' + "".join(f'{key} = "{getattr(self, key).hex()}"\n' for key in _SECRETS),
            0o600,
        )

    def save_both(self, path: Path) -> Path:
        """Write the secret file, and beside it the public one with the suffix .pub, whose path is returned.

        Raises:
            MisuseError: the name cannot stand in a file, or the secret file would itself end in .pub.
            StorageError: one of the two exists, or cannot be written.
        """
        public = path.with_suffix(".pub")
        if path == public:
            raise MisuseError(f"{path} is where the public keys go; give the secret file another suffix, such as .key")
        if exists(public):
            raise StorageError(f"{public} exists; keys are never overwritten, choose another name")
        self.save(path)
        _create(public, self.public.to_toml(), 0o644)
        return public

    @staticmethod
    def load(path: Path) -> Identity:
        """Read a secret file.

        Raises:
            MisuseError: the file is missing or malformed, is not the user's own, or others can read or replace it.
        """
        if path.suffix == ".pub":
            secret = path.with_suffix(".key")
            raise MisuseError(f"{path} has public keys, which others are given; the secret file is needed, as {secret}")
        table = parse_toml(read_private(path, _LOST), str(path))
        name = check_name(table.get("name"), str(path))
        if "statement_secret" in table and "noise_secret" not in table:
            raise MisuseError(
                f"{path} has no noise_secret: it is of an earlier release, or was cut; make new keys with `fsl-async "
                "keygen`, and give the others the new .pub file"
            )
        return Identity(name, *(_hex_key(table, key, str(path)) for key in _SECRETS))


_SECRETS = ("channel_secret", "statement_secret", "noise_secret")
"""The fields of an identity that are secret, as they are called in its file."""


_LOST = "put its copy back; if there is none, make one with `fsl-async keygen`, as docs/operations.md says"


def key_prefix(key: bytes) -> str:
    """The beginning of a public key, as logs show it: enough to tell keys apart, and to revoke one."""
    return key.hex()[:PREFIX_DIGITS]


def check_name(name: object, source: str) -> str:
    """Return a party's name, if it can be one.

    Raises:
        MisuseError: it is not a text of 1 to 64 printable characters.
    """
    if isinstance(name, str) and is_name(name):
        return name
    raise MisuseError(
        f"{source}: a name of 1 to {LONGEST_NAME} printable characters expected, no quotation mark or backslash, "
        f"got {str(name)[:LONGEST_NAME]!r}"
    )


def channel_key(table: Mapping[str, Any], source: str) -> bytes:
    """The channel key that a table holds as `channel`.

    Raises:
        MisuseError: it is missing, or is not one.
    """
    key = _hex_key(table, "channel", source)
    if not is_public_key(key):
        raise MisuseError(
            f"{source}: channel {key.hex()} is not the one form in which an X25519 public key is written; take it from "
            "its owner's .pub file, as `fsl-async keygen` has made it"
        )
    return key


def verify(statement_key: bytes, signature: bytes, domain: Domain, *parts: bytes) -> bool:
    """Whether a signature is that key's on this statement."""
    try:
        VerifyKey(statement_key).verify(digest(domain, *parts), signature)
    except (BadSignatureError, ValueError):
        return False
    return True


def read_private(path: Path, remedy: str) -> str:
    """Read a file that is the user's own secret.

    Args:
        path: the file.
        remedy: what to do where there is none.

    Raises:
        MisuseError: it is missing, no file, belongs to another user, or others can read or replace it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for a writer
    except OSError as error:
        raise MisuseError(f"{path} cannot be read: {error.strerror}; {remedy}") from error
    try:
        _check_private(path, os.fstat(descriptor))
        with open(descriptor, encoding="utf-8", closefd=False) as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise MisuseError(f"{path} is not a text: {error.reason}") from error
    finally:
        os.close(descriptor)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise MisuseError(f"{path} is not a file; a secret is read from a regular one")
    if status.st_uid != os.geteuid():
        raise MisuseError(f"{path} belongs to another user; a secret must belong to the one who uses it")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise MisuseError(
            f"{path} can be read by others; `chmod 600` it, and replace what is in it if others may have seen it"
        )
    folder = path.absolute().parent.stat().st_mode
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        raise MisuseError(f"{path} is in a folder where everybody can replace it; `chmod o-w` the folder")


def _create(path: Path, text: str, mode: int) -> None:
    """Write a new file; one that cannot be written completely is removed."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise StorageError(f"{path} exists; keys are never overwritten, choose another name") from error
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink()
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error


def _hex_key(table: Mapping[str, Any], key: str, source: str) -> bytes:
    value = table.get(key)
    try:
        data = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        data = b""
    if len(data) != 32:
        raise MisuseError(f"{source}: {key} must be 64 hexadecimal digits")
    return data
