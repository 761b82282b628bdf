"""Lists of clients and digests, as the two servers send each other their rosters and proofs.

Where a task has a bound, an entry of proofs is longer: the digest, then the server's share of the bound's proof.

A list has one form: sorted by client, and accepted only if packing it again gives the same bytes. A name may be unknown
here, because a client may have enrolled at the other server only; but it must be a valid name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias

import msgpack
import msgspec

from fsl_async.digests import DIGEST_BYTES
from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import LONGEST_NAME, is_client_name

ClientDigests: TypeAlias = dict[str, bytes]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]


def pack_digests(entries: Mapping[str, bytes]) -> bytes:
    """Canonical bytes of a list of clients and digests: sorted by client."""
    return bytes(msgpack.packb(sorted(entries.items())))


def unpack_digests(data: bytes | memoryview, limit: int, sender: str, entry_bytes: int = DIGEST_BYTES) -> ClientDigests:
    """Read a packed list of at most `limit` clients, each with so many bytes.

    Raises:
        PeerViolationError: it is not such a list, or not in canonical order; or a name on it cannot be a client's.
    """
    try:
        # Decoded with its type: an untyped decoder would allocate memory for every nested list that is declared.
        entries = dict(msgspec.msgpack.decode(data, type=list[tuple[_Name, bytes]]))
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise PeerViolationError(sender, f"sent a list of clients that cannot be read: {error}") from error
    if len(entries) > limit:
        raise PeerViolationError(sender, f"sent a list of clients that has {len(entries)}, at most {limit} are allowed")
    if any(len(value) != entry_bytes for value in entries.values()) or pack_digests(entries) != bytes(data):
        raise PeerViolationError(sender, "sent a list of clients that is not in canonical form")
    for client in entries:
        if not is_client_name(client):
            raise PeerViolationError(sender, f"sent a list of clients with {client!r} on it, which names no client")
    return entries
