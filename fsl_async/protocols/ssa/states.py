"""The states of a round on one server, in the order of a round, and the events that lead from one to another.

A state holds what its successors need, and nothing else: a restarted server takes the recorded events again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import msgspec

from fsl_async.bounds import BoundTerms, terms_of
from fsl_async.config import RoundConfig
from fsl_async.digests import DIGEST_BYTES, Domain, digest
from fsl_async.protocols.ending import (
    CloseRound,
    GaveUp,
    PeerAbort,
    PeerConclusion,
    RoundState,
    Step,
)
from fsl_async.protocols.entries import Entries, packed, roster_digest
from fsl_async.protocols.machine import Event, PeerEvent
from fsl_async.wire.peer_lists import ClientDigests

Listed: TypeAlias = Mapping[str, bytes]
"""By client, the digest of its submission; what grows is an `Entries`."""

Heard: TypeAlias = dict[str, bytes]
"""By what it was, the digest of what the peer has said."""

Counts: TypeAlias = tuple[bytes, ...]
"""S0's and S1's share of the counts of contributors, by their digests; empty where none are exchanged."""


@dataclass(frozen=True)
class Terms:
    """What is fixed for the whole round.

    Attributes:
        round_id: the round.
        server: 0 or 1.
        minimum: a round with fewer clients is aborted.
        verified: whether proofs are exchanged.
        own_rule: whether the task applies a function of its own, whose results on two servers may differ honestly.
        contributors: whether only rows with enough contributors are opened, so that counts are exchanged first.
        bound: of the proof that each update is within the task's bound; None where it has none.
    """

    round_id: bytes
    server: int
    minimum: int
    verified: bool
    own_rule: bool = False
    contributors: bool = False
    bound: BoundTerms | None = None

    @staticmethod
    def of(config: RoundConfig, server: int) -> Terms:
        """A round's, on one server."""
        task = config.task
        return Terms(
            config.round_id(),
            server,
            task.quorum,
            task.verified,
            own_rule=config.protocol == "ssa" and task.rule == "own",
            contributors=task.min_contributors is not None,
            bound=terms_of(config.shape),
        )

    @property
    def peer(self) -> str:
        """The other server's name."""
        return f"S{1 - self.server}"

    @property
    def proof_bytes(self) -> int:
        """Of one client's entry in a list of proofs: its proof digest, and our share of the proof of its bound."""
        return DIGEST_BYTES + (0 if self.bound is None else self.bound.verifier_bytes)


# ---- states


class Listing(RoundState, frozen=True):
    """A state that still needs the list of the submissions that this server has."""

    entries: Listed


class Open(Listing, frozen=True, tag="Open"):
    """Clients submit."""

    activity = "collecting"
    waits_for = "clients"
    said = Step.TOSS_REVEAL

    entries: Listed = msgspec.field(default_factory=Entries)


class Closed(Listing, frozen=True, tag="Closed"):
    """Our list is frozen and sent; the peer's is awaited."""

    activity = "waiting"
    waits_for = "{peer}'s list of submissions"
    said = Step.ROSTER
    may_give_up = True


class Closing(Listing, frozen=True, tag="Closing"):
    """The peer has closed; `missing` of the submissions on its list are still on their way to us."""

    activity = "collecting"
    waits_for = "submissions that {peer} has"
    said = Step.TOSS_REVEAL

    theirs: Listed
    heard: Heard
    missing: int


class Rostered(Listing, frozen=True, tag="Rostered"):
    """The roster is agreed; its submissions are being evaluated."""

    activity = "computing"
    waits_for = "evaluation"
    said = Step.ROSTER

    roster: Listed
    excluded: dict[str, str]
    heard: Heard


class Proved(Listing, frozen=True, tag="Proved"):
    """Our proof digests are sent; the peer's are awaited."""

    activity = "waiting"
    waits_for = "{peer}'s proof digests"
    said = Step.PROOFS
    may_give_up = True

    roster: Listed
    excluded: dict[str, str]
    proofs: Listed
    heard: Heard


class Verified(Listing, frozen=True, tag="Verified"):
    """It is settled who counts; our share is being summed, or first our share of the counts of contributors."""

    activity = "computing"
    waits_for = "our share of the sum"
    said = Step.PROOFS

    counted: Listed
    excluded: dict[str, str]
    proofs: Listed
    heard: Heard


class Tallied(Listing, frozen=True, tag="Tallied"):
    """Our share of the counts of contributors is sent; the peer's is awaited."""

    activity = "waiting"
    waits_for = "{peer}'s counts of contributors"
    said = Step.COUNTS
    may_give_up = True
    reveals = True

    counted: Listed
    excluded: dict[str, str]
    proofs: Listed
    counts: bytes
    heard: Heard


class Chosen(Listing, frozen=True, tag="Chosen"):
    """Both shares of the counts are known, and so which rows are opened; our share of these is being summed."""

    activity = "computing"
    waits_for = "our share of the sum"
    said = Step.COUNTS
    reveals = True

    counted: Listed
    excluded: dict[str, str]
    proofs: Listed
    counts: Counts
    heard: Heard


class Committed(Listing, frozen=True, tag="Committed"):
    """Our commitment is sent; the peer's is awaited. From here on this server cannot abandon the round."""

    activity = "waiting"
    waits_for = "{peer}'s commitment"
    said = Step.COMMITMENT

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    counted: Listed
    excluded: dict[str, str]
    proofs: Listed
    share: bytes
    nonce: bytes
    heard: Heard
    counts: Counts = ()


class Revealed(RoundState, frozen=True, tag="Revealed"):
    """Both commitments are known and our share is sent; the peer's is awaited."""

    activity = "waiting"
    waits_for = "{peer}'s share"
    said = Step.SHARE
    reveals = True

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    counted: Listed
    excluded: dict[str, str]
    share: bytes
    nonce: bytes
    peer_commitment: bytes
    heard: Heard
    counts: Counts = ()


class Combined(RoundState, frozen=True, tag="Combined"):
    """Both shares are known; the update is being applied."""

    activity = "computing"
    waits_for = "the update"
    said = Step.SHARE
    reveals = True

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    counted: Listed
    excluded: dict[str, str]
    share: bytes
    nonce: bytes
    peer_share: bytes
    heard: Heard
    counts: Counts = ()


class Concluded(RoundState, frozen=True, tag="Concluded"):
    """Our outcome is sent; the peer's is awaited."""

    activity = "waiting"
    waits_for = "{peer}'s outcome"
    said = Step.CONCLUSION
    reveals = True

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    share: bytes
    nonce: bytes
    outcome: bytes
    heard: Heard


class Done(RoundState, frozen=True, tag="Done"):
    """Both servers arrived at the same outcome."""

    reveals = True

    outcome: bytes
    heard: Heard


class Differed(RoundState, frozen=True, tag="Differed"):
    """The task's own rule gave the servers different outcomes: both keep the model that they had."""

    reveals = True

    outcome: bytes
    theirs: bytes
    heard: Heard


class Aborted(RoundState, frozen=True, tag="Aborted"):
    """Aborted before anything was revealed."""

    explanation: str


Round: TypeAlias = (
    Open
    | Closed
    | Closing
    | Rostered
    | Proved
    | Verified
    | Tallied
    | Chosen
    | Committed
    | Revealed
    | Combined
    | Concluded
    | Done
    | Differed
    | Aborted
)


def heard_in(state: Round) -> Heard:
    """What the peer has said, as far as the state still knows it."""
    match state:
        case Open() | Closed() | Aborted():
            return {}
        case _:
            return state.heard


def roster_sent(state: RoundState) -> bytes:
    """The digest of the list that was sent; empty before, and once the state does not need the list any more."""
    return roster_digest(state.entries) if isinstance(state, Listing) and state.said >= Step.ROSTER else b""


def needed_in(state: Round) -> Iterable[str]:
    """Whose submissions must be in the sum, or may come to be."""
    match state:
        case Open(entries=clients) | Closed(entries=clients) | Closing(entries=clients):
            return clients
        case Rostered(roster=clients) | Proved(roster=clients):
            return clients
        case Verified(counted=clients) | Tallied(counted=clients) | Chosen(counted=clients):
            return clients
        case _:
            return ()


# ---- events


class Submitted(Event, frozen=True, tag="Submitted"):
    """A client's submission is stored in full."""

    client: str
    digest: bytes


class GraceOver(Event, frozen=True, tag="GraceOver"):
    """The grace period for submissions that only the peer holds is over."""


class Evaluated(Event, frozen=True, tag="Evaluated"):
    """Every submission of the roster is in the accumulators; one proof each (none where semi-honest).

    A proof is a digest, and then this server's share of the proof of the client's bound, if the task has one. Each
    bound is asked about once, so this event is recorded before anything of it is sent.
    """

    proofs: ClientDigests


class RowsCounted(Event, frozen=True, tag="RowsCounted"):
    """Our share of the counts of every row's contributors, by its digest."""

    counts: bytes


class Summed(Event, frozen=True, tag="Summed"):
    """Our share of the aggregate, by its digest, and a fresh nonce."""

    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    share: bytes
    nonce: bytes


class Applied(Event, frozen=True, tag="Applied"):
    """The update is applied; the digest of the outcome."""

    outcome: bytes


class PeerRoster(PeerEvent, frozen=True, tag="PeerRoster", dict=True):
    """The submissions that the peer holds in full."""

    said: ClassVar[str] = "roster"
    entries: ClientDigests

    def content(self) -> bytes:
        """The digest of the packed list."""
        return self._content

    @cached_property
    def _content(self) -> bytes:
        return roster_digest(self.entries)


class PeerProofs(PeerEvent, frozen=True, tag="PeerProofs", dict=True):
    """The peer's proofs, one for each client of the roster."""

    said: ClassVar[str] = "proof list"
    proofs: ClientDigests

    def content(self) -> bytes:
        """The digest of the packed list."""
        return self._content

    @cached_property
    def _content(self) -> bytes:
        return digest(Domain.PROOF, packed(self.proofs))

    def judged(self, ours: Listed, judge: Callable[[], dict[str, str]]) -> dict[str, str]:
        """What `judge` finds of them beside ours: kept, because to judge ten thousand takes seconds."""
        kept = vars(self)
        if kept.get("ours") is not ours:
            kept["failed"], kept["ours"] = judge(), ours
        failed: dict[str, str] = kept["failed"]
        return failed


class PeerCounts(PeerEvent, frozen=True, tag="PeerCounts"):
    """The peer's share of the counts of contributors, by its digest."""

    said: ClassVar[str] = "count"
    counts: bytes

    def content(self) -> bytes:
        """The digest."""
        return self.counts


class PeerCommitment(PeerEvent, frozen=True, tag="PeerCommitment"):
    """The peer's commitment to its share."""

    said: ClassVar[str] = "commitment"
    commitment: bytes

    def content(self) -> bytes:
        """The commitment."""
        return self.commitment


class PeerShare(PeerEvent, frozen=True, tag="PeerShare"):
    """The peer's share, by its digest, and the nonce that opens its commitment."""

    said: ClassVar[str] = "share"
    hidden: ClassVar[frozenset[str]] = frozenset({"nonce"})
    share: bytes
    nonce: bytes

    def content(self) -> bytes:
        """The digest and the nonce."""
        return digest(Domain.SHARE, self.share, self.nonce)


RoundEvent: TypeAlias = (
    Submitted
    | CloseRound
    | GraceOver
    | Evaluated
    | RowsCounted
    | Summed
    | Applied
    | GaveUp
    | PeerRoster
    | PeerProofs
    | PeerCounts
    | PeerCommitment
    | PeerShare
    | PeerConclusion
    | PeerAbort
)
