"""What a client says about itself when it connects, by which a server decides whether to admit it."""

from __future__ import annotations

from typing import Annotated

import msgpack
import msgspec

from fsl_async.digests import KEY_BYTES, Domain
from fsl_async.errors import MisuseError
from fsl_async.wire.messages import Digest, Signature
from parties.identity.keys import Identity, check_name, verify

NO_VOUCHER = b""


class Credentials(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
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
    voucher: Annotated[bytes, msgspec.Meta(max_length=KEY_BYTES)] = NO_VOUCHER

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
        return bytes(msgpack.packb(msgspec.to_builtins(self, builtin_types=(bytes,))))

    @staticmethod
    def decode(payload: bytes) -> Credentials:
        """Read a payload.

        Raises:
            MisuseError: it is not one client's credentials.
        """
        try:
            plain = msgpack.unpackb(
                payload, max_str_len=256, max_bin_len=64, max_array_len=0, max_map_len=8, max_ext_len=0
            )
            credentials = msgspec.convert(plain, Credentials, builtin_types=(bytes,))
        except (
            ValueError,
            TypeError,
            RecursionError,
            msgpack.exceptions.UnpackException,
            msgspec.MsgspecError,
        ) as error:
            raise MisuseError(f"credentials that cannot be read: {error}; is your version another?") from error
        check_name(credentials.name, "credentials")
        if credentials.encode() != payload:
            raise MisuseError("credentials in another encoding than their one: fields in order, in their shortest form")
        return credentials

    def is_signed_for(self, channel: bytes) -> bool:
        """Whether the statement key's holder has signed for that channel key."""
        return verify(self.statement, self.signature, Domain.ENROLMENT, self.task, self.name.encode(), channel)
