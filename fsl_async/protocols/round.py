"""A round on one server, from open to done: the server's side of secure submodel aggregation.

    OPEN ──CloseRound──> CLOSED ──PeerRoster──> ROSTERED ──Evaluated──> PROVED ──PeerProofs──> VERIFIED ──┐
      │                                          ^  ^  └────(semi-honest: no proofs)────────────^        Summed
      ├──PeerRoster, all here────────────────────┘  │                                                     v
      └──PeerRoster, some on their way──> CLOSING ──┘  (the last Submitted, or GraceOver)             COMMITTED
                                                                                                          │
    DONE <──PeerConclusion── CONCLUDED <──Applied── COMBINED <──PeerShare── REVEALED <──PeerCommitment────┘

    any state before COMMITTED: GaveUp, PeerAbort or too few clients ──> ABORTED; COMMITTED: PeerAbort ──> ABORTED

Rules:

- One roster per round: the submissions that both servers hold in full, with equal digests. The first server to close
  freezes its list; the other still takes, for a grace period, what the first has and it has not. A peer's second,
  different roster is a violation: the difference of two sums would expose a client.
- A roster (or what verification leaves of it) below the minimum aborts before anything is revealed.
- A share is revealed only after the peer has committed to its own; a share that does not match its commitment halts.
- Whoever has COMMITTED does not give up any more: it waits and resends. It follows a peer that gave up before it had
  committed itself, for then neither share has been revealed, nor ever will be.

Source: paper §"Basic Protocols" (SSA); design §9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias, assert_never

import msgpack
import msgspec

from fsl_async.digests import DIGEST_BYTES, Domain, digest, same
from fsl_async.errors import PeerViolationError
from fsl_async.messages import Abort, Commitment, Conclusion, Proofs, RosterList, Share
from fsl_async.protocols.machine import Event, PeerEvent, State, Transitions, UnexpectedEvent, accepts, recall

__all__ = [
    "ACCEPTS",
    "BEFORE_REVEALED",
    "INITIAL",
    "TRANSITIONS",
    "Aborted",
    "Applied",
    "Apply",
    "CloseRound",
    "Closed",
    "Closing",
    "Combined",
    "Committed",
    "Concluded",
    "Done",
    "Effect",
    "Evaluate",
    "Evaluated",
    "GaveUp",
    "GraceOver",
    "Open",
    "PeerAbort",
    "PeerCommitment",
    "PeerConclusion",
    "PeerProofs",
    "PeerRoster",
    "PeerShare",
    "Proved",
    "Revealed",
    "Rostered",
    "Round",
    "Send",
    "SendShare",
    "Submitted",
    "Sum",
    "Summed",
    "Terms",
    "Verified",
    "effects",
    "pack_entries",
    "share_commitment",
    "step",
    "unpack_entries",
]

Entries: TypeAlias = dict[str, bytes]
Heard: TypeAlias = dict[str, bytes]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=64)]


@dataclass(frozen=True)
class Terms:
    """What is fixed for the whole round."""

    round_id: bytes
    server: int
    minimum: int
    verified: bool

    @property
    def peer(self) -> str:
        """The other server's name."""
        return f"S{1 - self.server}"


# ---- states


class Open(State, frozen=True):
    """Clients submit."""

    entries: Entries = msgspec.field(default_factory=dict)


class Closed(State, frozen=True):
    """Our list is frozen and sent; the peer's is awaited."""

    entries: Entries


class Closing(State, frozen=True):
    """The peer has closed; some of the submissions on its list are still on their way to us."""

    entries: Entries
    theirs: Entries
    heard: Heard


class Rostered(State, frozen=True):
    """The roster is agreed; its submissions are being evaluated."""

    entries: Entries
    roster: Entries
    excluded: dict[str, str]
    heard: Heard


class Proved(State, frozen=True):
    """Our proof digests are sent; the peer's are awaited."""

    entries: Entries
    roster: Entries
    excluded: dict[str, str]
    proofs: Entries
    heard: Heard


class Verified(State, frozen=True):
    """It is settled who counts; our share is being summed."""

    entries: Entries
    counted: Entries
    excluded: dict[str, str]
    proofs: Entries
    heard: Heard


class Committed(State, frozen=True):
    """Our commitment is sent; the peer's is awaited. From here on we do not give up."""

    entries: Entries
    counted: Entries
    excluded: dict[str, str]
    proofs: Entries
    share: bytes
    nonce: bytes
    heard: Heard


class Revealed(State, frozen=True):
    """Both commitments are known and our share is sent; the peer's is awaited."""

    counted: Entries
    excluded: dict[str, str]
    share: bytes
    nonce: bytes
    peer_commitment: bytes
    heard: Heard


class Combined(State, frozen=True):
    """Both shares are known; the update is being applied."""

    counted: Entries
    excluded: dict[str, str]
    share: bytes
    nonce: bytes
    peer_share: bytes
    heard: Heard


class Concluded(State, frozen=True):
    """Our outcome is sent; the peer's is awaited."""

    share: bytes
    nonce: bytes
    outcome: bytes
    heard: Heard


class Done(State, frozen=True):
    """Both servers arrived at the same outcome."""

    outcome: bytes
    heard: Heard


class Aborted(State, frozen=True):
    """Given up before anything was revealed."""

    explanation: str


Round: TypeAlias = (
    Open
    | Closed
    | Closing
    | Rostered
    | Proved
    | Verified
    | Committed
    | Revealed
    | Combined
    | Concluded
    | Done
    | Aborted
)


# ---- events


class Submitted(Event, frozen=True):
    """A client's submission is stored in full."""

    client: str
    digest: bytes


class CloseRound(Event, frozen=True):
    """The deadline has come, or every expected client is in."""


class GraceOver(Event, frozen=True):
    """Submissions that only the peer holds are not waited for any longer."""


class Evaluated(Event, frozen=True):
    """Every submission of the roster is in the accumulators; one proof digest each (none where semi-honest)."""

    proofs: Entries


class Summed(Event, frozen=True):
    """Our share of the aggregate, by its digest, and a fresh nonce."""

    share: bytes
    nonce: bytes


class Applied(Event, frozen=True):
    """The update is applied; the digest of the outcome."""

    outcome: bytes


class GaveUp(Event, frozen=True):
    """The operator or the agreed time ends the round."""

    explanation: str


class PeerRoster(PeerEvent, frozen=True):
    """The submissions that the peer holds in full."""

    said: ClassVar[str] = "roster"
    entries: Entries

    def content(self) -> bytes:
        """The digest of the packed list."""
        return digest(Domain.ROSTER, pack_entries(self.entries))


class PeerProofs(PeerEvent, frozen=True):
    """The peer's proof digests, one for each client of the roster."""

    said: ClassVar[str] = "proof list"
    proofs: Entries

    def content(self) -> bytes:
        """The digest of the packed list."""
        return digest(Domain.PROOF, pack_entries(self.proofs))


class PeerCommitment(PeerEvent, frozen=True):
    """The peer's commitment to its share."""

    said: ClassVar[str] = "commitment"
    commitment: bytes

    def content(self) -> bytes:
        """The commitment."""
        return self.commitment


class PeerShare(PeerEvent, frozen=True):
    """The peer's share, by its digest, and the nonce that opens its commitment."""

    said: ClassVar[str] = "share"
    share: bytes
    nonce: bytes

    def content(self) -> bytes:
        """The digest and the nonce."""
        return digest(Domain.SHARE, self.share, self.nonce)


class PeerConclusion(PeerEvent, frozen=True):
    """The digest of the peer's outcome."""

    said: ClassVar[str] = "conclusion"
    outcome: bytes

    def content(self) -> bytes:
        """The digest."""
        return self.outcome


class PeerAbort(Event, frozen=True):
    """The peer has given the round up."""

    explanation: str


INITIAL: tuple[type[State], ...] = (Open,)

TRANSITIONS: Transitions = {
    (Open, Submitted): frozenset({Open}),
    (Open, CloseRound): frozenset({Closed}),
    (Open, PeerRoster): frozenset({Closing, Rostered, Aborted}),
    (Closed, PeerRoster): frozenset({Rostered, Aborted}),
    (Closing, Submitted): frozenset({Closing, Rostered, Aborted}),
    (Closing, GraceOver): frozenset({Rostered, Aborted}),
    (Rostered, Evaluated): frozenset({Proved, Verified}),
    (Proved, PeerProofs): frozenset({Verified, Aborted}),
    (Verified, Summed): frozenset({Committed}),
    (Committed, PeerCommitment): frozenset({Revealed}),
    (Committed, PeerAbort): frozenset({Aborted}),
    (Revealed, PeerShare): frozenset({Combined}),
    (Combined, Applied): frozenset({Concluded}),
    (Concluded, PeerConclusion): frozenset({Done}),
    **{
        (state, event): frozenset({Aborted})
        for state in (Open, Closed, Closing, Rostered, Proved, Verified)
        for event in (GaveUp, PeerAbort)
    },
}

ACCEPTS = accepts(Round, TRANSITIONS)

BEFORE_REVEALED = (Open, Closed, Closing, Rostered, Proved, Verified, Committed)
"""Where no honest peer's share can be: it is sent only by who has our commitment, and after its own."""


# ---- effects


@dataclass(frozen=True)
class Send:
    """Send a message to the peer."""

    message: RosterList | Proofs | Commitment | Conclusion | Abort
    bulk: bytes = b""


@dataclass(frozen=True)
class SendShare:
    """Send our share, kept by its digest, to the peer."""

    message: Share
    share: bytes


@dataclass(frozen=True)
class AwaitGrace:
    """Report `GraceOver` when the grace period has passed."""


@dataclass(frozen=True)
class Evaluate:
    """Bring exactly these submissions into the accumulators, then report `Evaluated`."""

    roster: Entries


@dataclass(frozen=True)
class Sum:
    """Leave only these submissions in the sum, form the share, then report `Summed`."""

    counted: Entries


@dataclass(frozen=True)
class Apply:
    """Add both shares, apply the update, then report `Applied`."""

    counted: Entries
    excluded: Mapping[str, str]
    share: bytes
    peer_share: bytes


Effect: TypeAlias = Send | SendShare | AwaitGrace | Evaluate | Sum | Apply


# ---- transitions


def step(state: Round, event: Event, terms: Terms) -> Round:
    """Take one event.

    Raises:
        PeerViolationError: the peer contradicts itself or its commitment.
        UnexpectedEvent: the state does not accept the event.
    """
    if isinstance(event, PeerEvent) and recall(getattr(state, "heard", {}), event, terms.peer):
        return state
    match state, event:
        case Open(entries=entries), Submitted(client=client, digest=submission):
            return _enter(entries, client, submission)
        case Open(entries=entries), CloseRound():
            return Closed(entries)
        case Open(entries=entries), PeerRoster(entries=theirs):
            return _close(Closing(entries, theirs, {event.said: event.content()}), terms)
        case Closing(entries=entries, theirs=theirs), Submitted(client=client, digest=submission) if client in theirs:
            return _close(Closing(_enter(entries, client, submission).entries, theirs, state.heard), terms)
        case Closing(entries=entries, theirs=theirs), GraceOver():
            return _agree(entries, theirs, terms, state.heard)
        case Closed(entries=entries), PeerRoster(entries=theirs):
            return _agree(entries, theirs, terms, {event.said: event.content()})
        case Rostered(), Evaluated(proofs=proofs):
            return _evaluated(state, proofs, terms)
        case Proved(), PeerProofs(proofs=theirs):
            return _verify(state, theirs, terms, state.heard | {event.said: event.content()})
        case Verified(), Summed(share=share, nonce=nonce):
            return Committed(state.entries, state.counted, state.excluded, state.proofs, share, nonce, state.heard)
        case Committed(), PeerCommitment(commitment=commitment):
            heard = state.heard | {event.said: event.content()}
            return Revealed(state.counted, state.excluded, state.share, state.nonce, commitment, heard)
        case Revealed(), PeerShare():
            return _combine(state, event, terms)
        case Combined(), Applied(outcome=outcome):
            return Concluded(state.share, state.nonce, outcome, state.heard)
        case Concluded(outcome=outcome), PeerConclusion(outcome=theirs):
            if outcome != theirs:
                raise PeerViolationError(terms.peer, "arrived at another outcome from the same shares")
            return Done(outcome, state.heard | {event.said: event.content()})
        case Aborted(), PeerAbort() | PeerEvent() | GraceOver() | Evaluated() | Summed():
            return state  # said or computed before it was known
        case _, GraceOver() if not isinstance(state, Open | Closed):
            return state  # they came in time
        case _, GaveUp(explanation=explanation) if GaveUp in ACCEPTS[type(state)]:
            return Aborted(_shortened(f"S{terms.server} gave up: {explanation}"))
        case _, PeerAbort(explanation=explanation) if PeerAbort in ACCEPTS[type(state)]:
            return Aborted(explanation)  # word for word: both servers give one account
    raise UnexpectedEvent(state, event, ACCEPTS)


def effects(state: Round, terms: Terms) -> tuple[Effect, ...]:
    """What a server in this state does, and does again after a restart.

    A message stays among the effects until an answer proves that the peer has it.
    """
    match state:
        case Open():
            return ()
        case Closed():
            return (_send_roster(state.entries, terms),)
        case Closing():
            return (AwaitGrace(),)
        case Rostered():
            return (_send_roster(state.entries, terms), Evaluate(state.roster))
        case Proved():
            return (_send_roster(state.entries, terms), *_send_proofs(state.proofs, terms))
        case Verified():
            return (
                _send_roster(state.entries, terms),
                *_send_proofs(state.proofs, terms),
                Sum(state.counted),
            )
        case Committed():
            return (
                _send_roster(state.entries, terms),
                *_send_proofs(state.proofs, terms),
                _send_commitment(state, terms),
            )
        case Revealed():
            return (
                _send_commitment(state, terms),
                _send_share(state.share, state.nonce, terms),
            )
        case Combined():
            return (
                _send_share(state.share, state.nonce, terms),
                Apply(state.counted, state.excluded, state.share, state.peer_share),
            )
        case Concluded():
            return (
                _send_share(state.share, state.nonce, terms),
                Send(Conclusion(terms.round_id, state.outcome)),
            )
        case Done():
            return (Send(Conclusion(terms.round_id, state.outcome)),)
        case Aborted():
            return (Send(Abort(terms.round_id, state.explanation)),)
        case _:
            assert_never(state)


def share_commitment(terms: Terms, server: int, counted: Mapping[str, bytes], share: bytes, nonce: bytes) -> bytes:
    """What server `server` commits to before shares are revealed: its share of the sum over exactly these clients."""
    roster = digest(Domain.ROSTER, pack_entries(counted))
    return digest(Domain.SHARE_COMMITMENT, terms.round_id, bytes([server]), roster, share, nonce)


def pack_entries(entries: Mapping[str, bytes]) -> bytes:
    """Canonical bytes of a list of clients and digests: sorted by client."""
    return bytes(msgpack.packb(sorted(entries.items())))


def unpack_entries(data: bytes | memoryview, limit: int, sender: str) -> Entries:
    """Read a packed list of at most `limit` clients.

    Raises:
        PeerViolationError: it is not one, or not in canonical order.
    """
    try:
        # Read as what it must be: a reader of anything would make room for every list that is declared in a list.
        entries = dict(msgspec.msgpack.decode(data, type=list[tuple[_Name, bytes]]))
    except (UnicodeDecodeError, msgspec.MsgspecError) as error:
        raise PeerViolationError(sender, f"sent a list of clients that cannot be read: {error}") from error
    if len(entries) > limit:
        raise PeerViolationError(sender, f"sent a list of clients that has {len(entries)}, at most {limit} are allowed")
    if any(len(value) != DIGEST_BYTES for value in entries.values()) or pack_entries(entries) != bytes(data):
        raise PeerViolationError(sender, "sent a list of clients that is not in canonical form")
    return entries


def _shortened(explanation: str) -> str:
    """As much of a text as a message may carry: 256 bytes."""
    return explanation.encode()[:256].decode(errors="ignore")


def _enter(entries: Entries, client: str, submission: bytes) -> Open:
    if entries.get(client, submission) != submission:
        raise PeerViolationError(client, "submitted twice, with different content")
    return Open(entries | {client: submission})


def _close(state: Closing, terms: Terms) -> Closing | Rostered | Aborted:
    if state.theirs.keys() <= state.entries.keys():
        return _agree(state.entries, state.theirs, terms, state.heard)
    return state


def _agree(ours: Entries, theirs: Entries, terms: Terms, heard: Heard) -> Rostered | Aborted:
    roster = {client: ours[client] for client in sorted(ours) if theirs.get(client) == ours[client]}
    excluded = _excluded(ours, theirs, terms.server)
    if len(roster) < terms.minimum:
        return Aborted(f"{len(roster)} clients are in with both servers, at least {terms.minimum} are needed")
    return Rostered(ours, roster, excluded, heard)


def _excluded(ours: Entries, theirs: Entries, server: int) -> dict[str, str]:
    reasons = {client: "mismatch" for client in ours.keys() & theirs.keys() if ours[client] != theirs[client]}
    reasons |= dict.fromkeys(ours.keys() - theirs.keys(), f"only_s{server}")
    reasons |= dict.fromkeys(theirs.keys() - ours.keys(), f"only_s{1 - server}")
    return dict(sorted(reasons.items()))


def _evaluated(state: Rostered, proofs: Entries, terms: Terms) -> Round:
    if terms.verified:
        return Proved(state.entries, state.roster, state.excluded, proofs, state.heard)
    return Verified(state.entries, state.roster, state.excluded, {}, state.heard)


def _verify(state: Proved, theirs: Entries, terms: Terms, heard: Heard) -> Round:
    if theirs.keys() != state.roster.keys():
        raise PeerViolationError(terms.peer, "sent proofs for other clients than the agreed roster's")
    sound = {client for client in state.roster if same(state.proofs[client], theirs[client])}
    counted = {client: entry for client, entry in state.roster.items() if client in sound}
    excluded = state.excluded | dict.fromkeys(sorted(state.roster.keys() - sound), "proof")
    if len(counted) < terms.minimum:
        return Aborted(f"{len(counted)} clients are left after verification, at least {terms.minimum} are needed")
    return Verified(state.entries, counted, dict(sorted(excluded.items())), state.proofs, heard)


def _combine(state: Revealed, event: PeerShare, terms: Terms) -> Combined:
    expected = share_commitment(terms, 1 - terms.server, state.counted, event.share, event.nonce)
    if not same(state.peer_commitment, expected):
        raise PeerViolationError(terms.peer, "revealed a share that does not match its commitment")
    heard = state.heard | {event.said: event.content()}
    return Combined(state.counted, state.excluded, state.share, state.nonce, event.share, heard)


def _send_roster(entries: Entries, terms: Terms) -> Send:
    return Send(RosterList(terms.round_id), pack_entries(entries))


def _send_proofs(proofs: Entries, terms: Terms) -> tuple[Send, ...]:
    return (Send(Proofs(terms.round_id), pack_entries(proofs)),) if terms.verified else ()


def _send_commitment(state: Committed | Revealed, terms: Terms) -> Send:
    commitment = share_commitment(terms, terms.server, state.counted, state.share, state.nonce)
    return Send(Commitment(terms.round_id, commitment))


def _send_share(share: bytes, nonce: bytes, terms: Terms) -> SendShare:
    return SendShare(Share(terms.round_id, nonce), share)
