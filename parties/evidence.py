"""What a server saw somebody do against the protocol, kept for whoever runs it.

Rules: an entry names the round, the party, and the two statements that contradict each other, by their digests: never
a seed, a share or a value. It is in the store before the refusal goes out. A round keeps one entry of a kind about a
party, however often it comes, so nobody can fill the store with it.

An entry is this server's word: what a client says is authenticated by its channel and not signed, so an entry tells the
operator whom to ask, and proves nothing to a third party. Where the carrier forwards something other than the client
announced, the server cannot know which of the two has lied; the entry says so.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from parties.happenings import Observe, Violated, unobserved
from parties.kept import read_kept
from parties.store import Store

__all__ = ["Evidence", "EvidenceBook", "Kind"]

JOURNAL = "evidence"

Kind: TypeAlias = Literal["two-contents", "two-parts", "two-hints", "two-digests", "proof", "violation"]


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One contradiction.

    Attributes:
        number: the round.
        about: the party: a client, or the other server.
        kind: `two-contents`, other content under one request of a client's; `two-parts`, the carrier forwarded another
            public part than the client announced; `two-hints`, a second hint for an epoch; `two-digests`, the client
            gave the servers different submissions; `proof`, its trees are no point functions, or the two servers
            disagree on that; `violation`, the other server broke the protocol.
        first: the digest that this server knew before, or arrived at itself; empty for a violation.
        second: the one that contradicts it.
        words: the same for people.
    """

    number: int
    about: str
    kind: Kind
    first: bytes = b""
    second: bytes = b""
    words: str


class EvidenceBook:
    """The evidence of one server, in its store.

    Args:
        store: where it is kept.
        observe: hears of every entry.
    """

    def __init__(self, store: Store, observe: Observe = unobserved) -> None:
        self._store = store
        self._observe = observe
        self._kept: set[tuple[int, str, Kind]] = set()

    async def restore(self) -> None:
        """Read back what has been kept, so that nothing is kept twice."""
        self._kept = {(entry.number, entry.about, entry.kind) for entry in await self.entries()}

    async def keep(self, entry: Evidence) -> None:
        """Keep an entry, unless this round has one of its kind about this party.

        Raises:
            StorageError: it could not be kept.
        """
        name = (entry.number, entry.about, entry.kind)
        if name in self._kept:
            return
        self._kept = {name, *(other for other in self._kept if other[0] == entry.number)}
        await self._store.record(JOURNAL, msgspec.msgpack.encode(entry))
        self._observe(Violated(number=entry.number, about=entry.about, kind=entry.kind, explanation=entry.words))

    async def entries(self) -> list[Evidence]:
        """Everything kept, in order."""
        return [read_kept(entry, Evidence, "the journal of evidence") for entry in await self._store.entries(JOURNAL)]
