"""The submissions that a server has, as a value that grows without being copied.

    first = Entries().extended("alice", digest)
    second = first.extended("bob", other)       # first still has one entry, and both share what they hold

A round of a hundred thousand clients has as many states, each with one submission more. All of them are views of one
log, and a view is as long as its state had it. A second extension of an older view copies, unless it says the same.
What the servers compare of a list, its canonical bytes and their digest, is made once for each value.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from itertools import islice

from fsl_async.digests import Domain, digest
from fsl_async.wire.peer_lists import pack_digests


class _Log:
    """What all views of one line of states share: the entries in order, and where each client's is."""

    def __init__(self, entries: Mapping[str, bytes]) -> None:
        self.clients, self.digests = list(entries), list(entries.values())
        self.places = {client: place for place, client in enumerate(self.clients)}

    def __len__(self) -> int:
        return len(self.clients)

    def append(self, client: str, digest: bytes) -> None:
        self.places[client] = len(self.clients)
        self.clients.append(client)
        self.digests.append(digest)

    def has_at(self, place: int, client: str, digest: bytes) -> bool:
        return self.clients[place] == client and self.digests[place] == digest


class Entries(Mapping[str, bytes]):
    """Clients and their submissions' digests: immutable, in the order in which they came.

    It is equal to every mapping of the same clients to the same digests.

    Args:
        entries: what it begins with; copied, unless they are `Entries`.
    """

    __slots__ = ("_count", "_digest", "_log", "_packed")
    _count: int
    _log: _Log
    _packed: bytes
    _digest: bytes

    def __init__(self, entries: Mapping[str, bytes] | None = None) -> None:
        self._packed, self._digest = b"", b""
        if isinstance(entries, Entries):
            self._log, self._count = entries._log, entries._count
        else:
            self._log = _Log(entries or {})
            self._count = len(self._log)

    def extended(self, client: str, digest: bytes) -> Entries:
        """These entries and one more, of a client that has none yet."""
        log = self._log
        if len(log) == self._count:
            log.append(client, digest)
        elif not log.has_at(self._count, client, digest):
            log = _Log({**self, client: digest})
        longer = Entries.__new__(Entries)
        longer._log, longer._count = log, self._count + 1
        longer._packed, longer._digest = b"", b""
        return longer

    def packed(self) -> bytes:
        """Canonical bytes of the list; see `pack_digests`."""
        self._packed = self._packed or pack_digests(self)
        return self._packed

    def roster_digest(self) -> bytes:
        """The digest of a roster with this content."""
        self._digest = self._digest or digest(Domain.ROSTER, self._packed or pack_digests(self))
        return self._digest

    def __getitem__(self, client: str) -> bytes:
        place = self._log.places[client]
        if place >= self._count:
            raise KeyError(client)
        return self._log.digests[place]

    def __iter__(self) -> Iterator[str]:
        return islice(self._log.clients, self._count)

    def __len__(self) -> int:
        return self._count

    def items(self) -> ItemsView[str, bytes]:
        """Clients and digests, in the order in which they came."""
        return _Items(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Entries) and self._log is other._log:
            return self._count == other._count
        if not isinstance(other, Mapping):
            return NotImplemented
        return len(self) == len(other) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"Entries({dict(self.items())!r})"


class _Items(ItemsView[str, bytes]):
    """As a mapping has them, and read from the log without looking each up."""

    _mapping: Entries

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        log = self._mapping._log
        return islice(zip(log.clients, log.digests, strict=False), len(self._mapping))


def packed(entries: Mapping[str, bytes]) -> bytes:
    """Canonical bytes of a list, as servers send it; made once of `Entries`."""
    return entries.packed() if isinstance(entries, Entries) else pack_digests(entries)


def roster_digest(entries: Mapping[str, bytes]) -> bytes:
    """What names a roster in commitments, and when the servers meet; made once of `Entries`."""
    return Entries(entries).roster_digest() if not isinstance(entries, Entries) else entries.roster_digest()
