"""What a server saw somebody do against the protocol, kept for its operator.

Rules: an entry names the round, the party, and the two statements that contradict each other, by their digests: never
a seed, a share or a value. It is in the store before the refusal goes out. For each party, a round has one entry of a
kind, however often it happens, so nobody can fill the store with it.

An entry is this server's word. What a client says is authenticated by its channel and not signed, so an entry tells
the operator whom to ask, and proves nothing to a third party. It names every party that can have lied and no other: a
client that contradicts itself at this server has done so alone; where a part came through the other server, or the
other server says so, either of the two may have lied, and the entry names both.

The round's machine leaves out a client of which the servers hold different submissions, whose trees have proofs that
differ, or whose update is not proved to be within the bound. Here evidence about it is made for the operator; it names
the peer as well, because the peer may have made up what it says it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec
import trio

from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from parties.events import EvidenceKind, Observer, Violated, Warned, unobserved
from parties.storage.store import Store, decode_stored

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


TWO_DIGESTS = "the two servers hold different submissions: the client has sent two, or {peer} has made one up"
TWO_PROOFS = "the two servers' proof digests differ: the client's trees are not well formed, or {peer} has made its up"
BEYOND_BOUND = (
    "the trees are well formed, but the two servers' answers together do not say that the update is within the task's "
    "bound: the client has submitted more or proved it wrongly, or {peer} has made its answer up"
)
TWO_OUTCOMES = (
    "from the same sum, the task's own rule gave {peer} another outcome than this server: compare the versions of the "
    "rule's module and of what it uses on both; a rule that depends on more than its arguments differs by itself"
)


def seen_in(state: ssa.Round, event: Event, number: int, terms: ssa.Terms) -> Iterator[Evidence]:
    """The evidence about clients that an event brings: the peer's roster or proofs, or a submission after the roster.

    Args:
        state: the round's, before the event.
        event: the event.
        number: the round's.
        terms: what the round's machine knows.

    Raises:
        PeerViolationError: a proof of the peer's has not the form that every honest server gives it.
    """
    peer = terms.peer
    match state, event:
        case ssa.Open() | ssa.Closed(), ssa.PeerRoster(entries=theirs):
            yield from _differing(state.entries, theirs, number, peer)
        case ssa.Closing(theirs=theirs), ssa.Submitted(client=client, digest=submission):
            yield from _differing({client: submission}, theirs, number, peer)
        case ssa.Proved(proofs=proofs), ssa.PeerProofs(proofs=theirs) if proofs.keys() == theirs.keys():
            for client, reason in ssa.failed_proofs(proofs, event, terms).items():
                yield _failed(client, reason, (proofs[client], theirs[client]), number, peer)
        case ssa.Concluded(outcome=ours), ssa.PeerConclusion(outcome=theirs) if ours != theirs:
            yield Evidence(
                number=number,
                about=peer,
                kind="outcome",
                first=ours,
                second=theirs,
                explanation=TWO_OUTCOMES.format(peer=peer),
            )


def strangers_in(
    state: ssa.Round, event: Event, number: int, peer: str, known: Callable[[str], bool]
) -> Iterator[Warned]:
    """The warning about a roster with names that are not known here.

    Such a roster is no violation: a client may be known to the peer alone, and is then not counted.

    Args:
        state: the round's, before the event.
        event: the event.
        number: the round's.
        peer: the other server's name.
        known: whether a client of that name is known here.
    """
    match state, event:
        case ssa.Open() | ssa.Closed(), ssa.PeerRoster(entries=theirs):
            strangers = [client for client in theirs if not known(client)]
            if strangers:
                explanation = (
                    f"round {number}: {peer} lists {len(strangers)} clients that are not known here, {strangers[0]!r} "
                    "the first of them; they are not counted"
                )
                yield Warned(about="clients", explanation=explanation)


def _differing(ours: Mapping[str, bytes], theirs: Mapping[str, bytes], number: int, peer: str) -> Iterator[Evidence]:
    for client in sorted(ours.keys() & theirs.keys()):
        if ours[client] != theirs[client]:
            yield Evidence(
                number=number,
                about=either(client, peer),
                kind="two-digests",
                first=ours[client],
                second=theirs[client],
                explanation=TWO_DIGESTS.format(peer=peer),
            )


def _failed(client: str, reason: str, proofs: tuple[bytes, bytes], number: int, peer: str) -> Evidence:
    """About a client whose trees are not well formed, or whose update is beyond the bound."""
    of_trees = reason == "proof"
    first, second = (proof[:DIGEST_BYTES] if of_trees else digest(Domain.PROOF, proof) for proof in proofs)
    return Evidence(
        number=number,
        about=either(client, peer),
        kind="proof" if of_trees else "bound",
        first=first,
        second=second,
        explanation=(TWO_PROOFS if of_trees else BEYOND_BOUND).format(peer=peer),
    )
