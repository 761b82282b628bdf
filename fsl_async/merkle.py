"""A list of submissions under one digest, its root, with a proof for each client of its place and its submission.

    tree = RosterTree({"anna": digest, "ben": another, "carla": third}, blind)
    seat = tree.seat("ben")                               # what is for Ben alone
    is_seated(tree.root, 3, "ben", seat)                  # True: Ben is the second of three, with `seat.digest`

Whoever has the same root has the same list; so no client can be told of another list than the others are. A proof has
the digests beside the path from a client's leaf to the top: some 17 of them for 100,000 clients.

Rules:

- Leaves, nodes and the root have domains of their own, and the root names how many clients there are: so no node stands
  for a leaf, and no list for a shorter or longer one. A node without a neighbour goes up as it is.
- A leaf stands for a client and the digest of its submission, by which it recognises what was counted of it.
- A leaf is blinded with a salt that only its client is given, derived from a secret of both servers. The digests beside
  a path tell nobody whose they are, not even to somebody who tries out names.
- A proof has exactly the length that the place and the number of clients imply.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec

from fsl_async.digests import DIGEST_BYTES, KEY_BYTES, Buffer, Domain, derive_key, digest, same

MOST_LEVELS: Final = 64
"""More than a list of any length has."""


class Seat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """That a client's submission is on a list, as only it is told.

    Attributes:
        place: where it is in the sorted list, from 0.
        digest: of the submission, as receipts and rosters call it.
        salt: what its leaf is blinded with.
        path: the digests beside the path from its leaf to the top, in this order.
    """

    place: Annotated[int, msgspec.Meta(ge=0)]
    digest: Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
    salt: Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    path: Annotated[bytes, msgspec.Meta(max_length=MOST_LEVELS * DIGEST_BYTES)]


class RosterTree:
    """The tree over a list.

    Args:
        submissions: their digests by client, sorted by name.
        blind: the secret of both servers; see `blind_of`.

    Attributes:
        root: what names the list.
    """

    def __init__(self, submissions: Mapping[str, bytes], blind: bytes) -> None:
        self._submissions = submissions
        self._clients = tuple(submissions)
        self._blind = blind
        level = b"".join(_leaf(client, made, _salt(client, blind)) for client, made in submissions.items())
        self._levels = [level]
        while len(level) > DIGEST_BYTES:
            level = b"".join(_parents(level))
            self._levels.append(level)
        self.root = _root(len(submissions), level)

    def seat(self, client: str) -> Seat | None:
        """A client's place with its proof; None where it is not on the list."""
        place = bisect_left(self._clients, client)
        if place == len(self._clients) or self._clients[place] != client:
            return None
        path = b"".join(_at(level, number ^ 1) for level, number in zip(self._levels, _numbers(place), strict=False))
        return Seat(place, self._submissions[client], _salt(client, self._blind), path)


def blind_of(proof_key: bytes, round_id: bytes) -> bytes:
    """The secret of both servers by which a round's list is blinded; no client ever learns it."""
    return derive_key(Domain.ROSTER_BLIND, proof_key, round_id)


def root_of_nobody() -> bytes:
    """The root of the list that has nobody on it."""
    return _root(0, b"")


def is_seated(root: bytes, count: int, client: str, seat: Seat) -> bool:
    """Whether a seat proves that a client's submission is on the list of so many with that root."""
    if not 0 <= seat.place < count or (len(seat.digest), len(seat.salt)) != (DIGEST_BYTES, KEY_BYTES):
        return False
    node, beside, size = _leaf(client, seat.digest, seat.salt), memoryview(seat.path), count
    for number in _numbers(seat.place):
        if size == 1:
            break
        if number ^ 1 < size:
            if len(beside) < DIGEST_BYTES:
                return False
            sibling, beside = bytes(beside[:DIGEST_BYTES]), beside[DIGEST_BYTES:]
            node = _node(sibling, node) if number & 1 else _node(node, sibling)
        size = (size + 1) // 2
    return not beside and same(root, _root(count, node))


def _numbers(place: int) -> Iterator[int]:
    """Of the nodes on the path from a leaf upwards, in their levels."""
    while True:
        yield place
        place >>= 1


def _parents(level: bytes) -> Iterator[bytes]:
    for start in range(0, len(level), 2 * DIGEST_BYTES):
        pair = level[start : start + 2 * DIGEST_BYTES]
        yield _node(pair[:DIGEST_BYTES], pair[DIGEST_BYTES:]) if len(pair) > DIGEST_BYTES else pair


def _at(level: bytes, number: int) -> bytes:
    """A node of a level; nothing where the level has none of that number."""
    return level[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


def _salt(client: str, blind: bytes) -> bytes:
    return derive_key(Domain.ROSTER_SALT, blind, client.encode())


def _leaf(client: str, submission: bytes, salt: bytes) -> bytes:
    return digest(Domain.ROSTER_LEAF, salt, client.encode(), submission)


def _node(left: Buffer, right: Buffer) -> bytes:
    return digest(Domain.ROSTER_NODE, left, right)


def _root(count: int, top: bytes) -> bytes:
    return digest(Domain.ROSTER_ROOT, count.to_bytes(8, "little"), top)
