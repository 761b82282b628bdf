"""What both sides say in the handshake: a client about itself, and a server of its tasks.

By a client's credentials a server decides whether to admit it. A server speaks before it knows who asks. One whose file
has one task shows the task's digest. One that may have several shows a salt and marks, however many it has now:

    salt (16) ‖ 30 marks of 16 bytes, sorted        a mark: the first bytes of the task's digest, hashed with the salt

Rules: who has a task's file finds out whether it is served, from either form; who has not learns nothing of a task from
marks, neither what it is nor, because the places that are left over hold random bytes, how many there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgpack
import msgspec

from fsl_async.digests import DIGEST_BYTES, KEY_BYTES, Domain, digest, same
from fsl_async.errors import MisuseError
from fsl_async.randomness import Randomness
from fsl_async.wire.codec import UNREADABLE
from fsl_async.wire.messages import Digest, Signature
from parties.identity.keys import Identity, check_name, verify

NO_VOUCHER = b""


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a client says about itself in the handshake; encrypted, for a server that has shown its key.

    Attributes:
        task: the digest of the task in which it wants to take part.
        name: its name.
        statement: the public key of its statements.
        signature: made with that key over task, name and the channel's key, so that nobody enrols another's key.
        voucher: made from its token for this server; empty if it has none.
    """

    task: Digest
    name: str
    statement: Digest
    signature: Signature
    voucher: bytes = NO_VOUCHER

    def __repr__(self) -> str:
        return f"Credentials(name={self.name!r})"

    @staticmethod
    def of(identity: Identity, task: bytes, voucher: bytes = NO_VOUCHER) -> Credentials:
        """The credentials of an identity for one server and the task with that digest."""
        public = identity.public
        return Credentials(
            task=task,
            name=public.name,
            statement=public.statement,
            signature=identity.sign(Domain.ENROLMENT, task, public.name.encode(), public.channel),
            voucher=voucher,
        )

    def encode(self) -> bytes:
        """The payload of the handshake's third message."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(payload: bytes) -> Credentials:
        """Read a payload.

        Raises:
            MisuseError: it is not one client's credentials.
        """
        if len(payload) == DIGEST_BYTES:
            raise MisuseError(
                "a server of the task comes with a key that is not the other server's in the task file here: give both "
                "servers the same task file, and start each with the keys in it"
            )
        try:
            plain = msgpack.unpackb(
                payload, max_str_len=256, max_bin_len=64, max_array_len=0, max_map_len=8, max_ext_len=0
            )
            credentials = msgspec.convert(plain, Credentials, builtin_types=(bytes,))
        except UNREADABLE as error:
            raise MisuseError(f"credentials that cannot be read: {error}; is your version another?") from error
        check_name(credentials.name, "credentials")
        if len(credentials.voucher) not in (0, KEY_BYTES):
            raise MisuseError(
                f"credentials with a voucher of {len(credentials.voucher)} bytes, {KEY_BYTES} or none expected"
            )
        if credentials.encode() != payload:
            raise MisuseError("credentials in another encoding than their one: fields in order, in their shortest form")
        return credentials

    def is_signed_for(self, channel: bytes) -> bool:
        """Whether the statement key's holder has signed for that channel key."""
        return verify(self.statement, self.signature, Domain.ENROLMENT, self.task, self.name.encode(), channel)


MOST_TASKS: Final = 30
"""So many marks, and as many tasks, has a server at most."""

MARK_BYTES: Final = 16
MARKS_BYTES: Final = MARK_BYTES * (1 + MOST_TASKS)


def served(tasks: Collection[bytes], randomness: Randomness) -> bytes:
    """The payload of a server that may have several tasks, and has those of these digests now."""
    salt = randomness(MARK_BYTES)
    marks = [_mark(salt, task) for task in tasks]
    marks += [randomness(MARK_BYTES) for _ in range(MOST_TASKS - len(marks))]
    return b"".join([salt, *sorted(marks)])


def serves(payload: bytes, task: bytes) -> bool:
    """Whether the server that shows this payload serves the task of that digest."""
    if are_marks(payload):
        mark = _mark(payload[:MARK_BYTES], task)
        return mark in {payload[at : at + MARK_BYTES] for at in range(MARK_BYTES, MARKS_BYTES, MARK_BYTES)}
    return same(payload, task)


def are_marks(payload: bytes) -> bool:
    """Whether a payload has the form of a server with several tasks."""
    return len(payload) == MARKS_BYTES != DIGEST_BYTES


def _mark(salt: bytes, task: bytes) -> bytes:
    return digest(Domain.SERVED, task, key=salt)[:MARK_BYTES]
