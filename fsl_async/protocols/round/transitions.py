"""From one state of a round to the next: the table of accepted events, and `step`; the rules are in the package."""

from __future__ import annotations

from fsl_async.digests import same
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.foreign_text import shortened
from fsl_async.protocols.machine import Event, PeerEvent, State, Transitions, UnexpectedEvent, accepts, recall
from fsl_async.protocols.round.side_effects import (
    share_commitment,
)
from fsl_async.protocols.round.states import (
    Aborted,
    Applied,
    Closed,
    CloseRound,
    Closing,
    Combined,
    Committed,
    Concluded,
    Done,
    Evaluated,
    GaveUp,
    GraceOver,
    Heard,
    Open,
    PeerAbort,
    PeerCommitment,
    PeerConclusion,
    PeerProofs,
    PeerRoster,
    PeerShare,
    Proved,
    Revealed,
    Rostered,
    Round,
    Submitted,
    Summed,
    Terms,
    Verified,
)
from fsl_async.wire.entries import Entries

__all__ = ["ACCEPTS", "BEFORE_REVEALED", "INITIAL", "TRANSITIONS", "step"]

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


def step(state: Round, event: Event, terms: Terms) -> Round:
    """Take one event.

    Raises:
        PeerViolationError: the peer contradicts itself or its commitment.
        UnexpectedEvent: the state does not accept the event.
        MisuseError: an evaluation is not the roster's.
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
            return Aborted(shortened(f"S{terms.server} gave up: {explanation}"))
        case _, PeerAbort(explanation=explanation) if PeerAbort in ACCEPTS[type(state)]:
            if not explanation:  # in the account of a round, no reason stands for a round that is done
                raise PeerViolationError(terms.peer, "gave the round up and does not say why")
            return Aborted(shortened(explanation))  # word for word, as it is printed: both servers give one account
    raise UnexpectedEvent(state, event, ACCEPTS)


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
    if terms.verified and proofs.keys() != state.roster.keys():
        raise MisuseError(f"proofs of the {len(state.roster)} clients on the roster expected, and of nobody else")
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
