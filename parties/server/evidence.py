"""What a server saw somebody do against the protocol, kept for its operator.

Rules: an entry names the round, the party, and the two statements that contradict each other, by their digests: never
a seed, a share or a value. It is in the store before the refusal goes out. For each party, a round has one entry of a
kind, however often it happens, so nobody can fill the store with it.

An entry is this server's word. What a client says is authenticated by its channel and not signed, so an entry tells
the operator whom to ask, and proves nothing to a third party. It names every party that can have lied and no other: a
client that contradicts itself at this server has done so alone; where a part came through the other server, or the
other server says so, either of the two may have lied, and the entry names both.
"""

from __future__ import annotations

import msgspec
import trio

from parties.events import EvidenceKind, Observer, Violated, unobserved
from parties.storage.decoding import decode_stored
from parties.storage.store import Store

JOURNAL = "evidence"


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contradiction.

    Attributes:
        number: the round.
        about: the party: a client, or the other server; both, where either may have done it (see `either`).
        kind: about a client alone: `two-contents`, other content under one request; `false-digest`, a part sent to its
            carrier that does not have the announced digest; `two-hints`, a second hint for an epoch. About a client or
            the other server: `two-parts`, the part that was forwarded is not the one that the client announced here;
            `two-digests`, the two servers hold different submissions of the client; `proof`, their proof digests of its
            trees differ; `bound`, their answers do not say that its update is within the task's bound; `excess`, the
            opened sum is more than its clients can have contributed. About the other server: `counts`, its share of the
            counts of contributors is false; `outcome`, the task's own rule gave it another outcome; `violation`, it
            broke the protocol.
        first: the digest that this server knew before, or computed itself; empty for a violation.
        second: the digest that contradicts it; empty for a violation.
        explanation: the same, for people.
    """

    number: int
    about: str
    kind: EvidenceKind
    first: bytes = b""
    second: bytes = b""
    explanation: str


def either(first: str, second: str) -> str:
    """What an entry is about where one of two parties has lied, and this server cannot know which."""
    return f"{first} or {second}"


class EvidenceBook:
    """The evidence of one server, in its store.

    Args:
        store: where it is kept.
        observe: hears of every entry.
    """

    def __init__(self, store: Store, observe: Observer = unobserved) -> None:
        self._store = store
        self._observe = observe
        self._kept: set[tuple[int, str, EvidenceKind]] = set()
        self._turn = trio.Lock()

    async def restore(self) -> None:
        """Read back the entries, so that none is kept twice."""
        self._kept = {(entry.number, entry.about, entry.kind) for entry in await self.entries()}

    async def keep(self, entry: Evidence) -> None:
        """Keep an entry, unless this round has one of its kind about this party; on return one is in the store.

        Raises:
            StorageError: it could not be kept.
        """
        name = (entry.number, entry.about, entry.kind)
        async with self._turn:  # of two that come at once, the second waits until the first is stored
            if name in self._kept:
                return
            await self._store.record(JOURNAL, msgspec.msgpack.encode(entry))
            self._kept = {name, *(other for other in self._kept if other[0] == entry.number)}
        self._observe(Violated(number=entry.number, about=entry.about, kind=entry.kind, explanation=entry.explanation))

    async def entries(self) -> list[Evidence]:
        """Everything kept, in order."""
        return [
            decode_stored(entry, Evidence, "the journal of evidence") for entry in await self._store.entries(JOURNAL)
        ]
