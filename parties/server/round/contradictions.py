"""What the two servers' lists show about clients when they are laid side by side.

The round's machine leaves out a client of which the servers hold different submissions, whose trees have proofs that
differ, or whose update is not proved to be within the bound. Here evidence about it is made for the operator (see
`parties.server.evidence`); it names the peer as well, because the peer may have made up what it says it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.protocols import ssa
from fsl_async.protocols.machine import Event
from parties.events import EvidenceKind, Warned
from parties.server.evidence import Evidence, either

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
            yield from _differing(state.entries, theirs, number, "two-digests", peer)
        case ssa.Closing(theirs=theirs), ssa.Submitted(client=client, digest=submission):
            yield from _differing({client: submission}, theirs, number, "two-digests", peer)
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


def _differing(
    ours: Mapping[str, bytes], theirs: Mapping[str, bytes], number: int, kind: EvidenceKind, peer: str
) -> Iterator[Evidence]:
    for client in sorted(ours.keys() & theirs.keys()):
        if ours[client] != theirs[client]:
            yield Evidence(
                number=number,
                about=either(client, peer),
                kind=kind,
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
