"""Lists that the two servers send each other: who has asked, rosters and proofs, and which public parts are held.

A list of names, or of clients and digests, has one form: sorted by client, each once, and accepted only if packing it
again gives the same bytes. A name may be unknown here, because a client may have enrolled at the other server only; but
it must be a valid name. Where a task has a bound, an entry of proofs is longer: the digest, then the server's share of
the bound's proof.

Which public parts of the other server's clients a server holds, it says in marks once the two have met.

    marks = mark (16) ‖ mark ‖ …, ascending     a mark: the first bytes of the digest of whose part it is, and which

Rules: what is not marked is forwarded again, so a mark too few costs bytes alone; there are at most two marks for each
client that the task admits, whatever a server holds. A mark of nothing that was forwarded says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeAlias

import msgpack
import msgspec

from fsl_async.digests import DIGEST_BYTES, Buffer, Domain, digest
from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import LONGEST_NAME, is_client_name
from fsl_async.wire.codec import UNREADABLE

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
    except UNREADABLE as error:
        raise PeerViolationError(sender, f"sent a list of clients that cannot be read: {error}") from error
    if len(entries) > limit:
        raise PeerViolationError(sender, f"sent a list of clients that has {len(entries)}, at most {limit} are allowed")
    if any(len(value) != entry_bytes for value in entries.values()) or pack_digests(entries) != bytes(data):
        raise PeerViolationError(sender, "sent a list of clients that is not in canonical form")
    for client in entries:
        if not is_client_name(client):
            raise PeerViolationError(sender, f"sent a list of clients with {client!r} on it, which names no client")
    return entries


LONGEST_PACKED_NAME = 4 * LONGEST_NAME + 5


def pack_names(names: Iterable[str]) -> bytes:
    """Canonical bytes of a list of names."""
    return bytes(msgpack.packb(sorted(names)))


def unpack_names(data: bytes | memoryview, limit: int, sender: str) -> tuple[str, ...]:
    """Read a packed list of at most `limit` names.

    Raises:
        PeerViolationError: it is not such a list, or not in canonical order; or a name on it cannot be a client's.
    """
    try:
        # Decoded with its type: an untyped decoder would allocate memory for every nested list that is declared.
        kind = list[Annotated[str, msgspec.Meta(max_length=LONGEST_NAME)]]
        names = msgspec.msgpack.decode(data, type=kind)
    except UNREADABLE as error:
        raise PeerViolationError(sender, f"sent a list of names that cannot be read: {error}") from error
    if len(names) > limit:
        raise PeerViolationError(sender, f"sent a list of {len(names)} names, at most {limit} are allowed")
    for name in names:
        if not is_client_name(name):
            raise PeerViolationError(sender, f"sent a list of names with {name!r} on it, which names no client")
    if len(set(names)) != len(names) or pack_names(names) != bytes(data):
        raise PeerViolationError(sender, "sent a list of names that is not in canonical form")
    return tuple(names)


MARK_BYTES: Final = 16
_OF_A_CLIENT: Final = 2


def mark_of(client: str, purpose: str, query: int, part: bytes) -> bytes:
    """The mark of a part.

    Args:
        client: whose it is.
        purpose: what it is for, "retrieve" or "submit".
        query: which retrieval; 0 for a submission.
        part: its digest.
    """
    return digest(Domain.HELD, client.encode(), purpose.encode(), query.to_bytes(8, "little"), part)[:MARK_BYTES]


def packed_marks(marks: Iterable[bytes], max_clients: int) -> bytes:
    """Marks as they travel; those that are too many are left out."""
    return b"".join(sorted(set(marks))[: _OF_A_CLIENT * max_clients])


def read_marks(data: Buffer, max_clients: int, peer: str) -> frozenset[bytes]:
    """The marks that the other server sends.

    Raises:
        PeerViolationError: they are too many, or no whole marks.
    """
    content, most = bytes(data), _OF_A_CLIENT * max_clients * MARK_BYTES
    if len(content) % MARK_BYTES or len(content) > most:
        explanation = f"says in {len(content)} bytes which parts it holds: marks of {MARK_BYTES}, {most} bytes at most"
        raise PeerViolationError(peer, explanation)
    return frozenset(content[at : at + MARK_BYTES] for at in range(0, len(content), MARK_BYTES))
