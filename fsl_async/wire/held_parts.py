"""Which public parts of the other server's clients a server holds, as it says once the two have met.

    marks = mark (16) ‖ mark ‖ …, ascending     a mark: the first bytes of the digest of whose part it is, and which

Rules: what is not marked is forwarded again, so a mark too few costs bytes alone; there are at most two marks for each
client that the task admits, whatever a server holds. A mark of nothing that was forwarded says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fsl_async.digests import Buffer, Domain, digest
from fsl_async.errors import PeerViolationError

__all__ = ["MARK_BYTES", "mark_of", "packed_marks", "read_marks"]

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
