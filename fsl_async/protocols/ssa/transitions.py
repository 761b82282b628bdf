"""The rules of a round: from one state to the next. What they keep is said in the package."""

from __future__ import annotations

from collections.abc import Sized
from functools import partial
from typing import TypeAlias, get_args

import msgspec

from fsl_async.bounds import accepts, check_answer
from fsl_async.counting import count_of
from fsl_async.digests import DIGEST_BYTES, same
from fsl_async.errors import MisuseError, PeerViolationError
from fsl_async.foreign_text import shortened
from fsl_async.protocols.ending import CloseRound, GaveUp, PeerAbort, PeerConclusion
from fsl_async.protocols.entries import Entries
from fsl_async.protocols.machine import Event, Machine, UnexpectedEvent, recall
from fsl_async.protocols.ssa.side_effects import share_commitment
from fsl_async.protocols.ssa.states import (
    Aborted,
    Applied,
    Chosen,
    Closed,
    Closing,
    Combined,
    Committed,
    Concluded,
    Differed,
    Done,
    Evaluated,
    GraceOver,
    Heard,
    Listed,
    Open,
    PeerCommitment,
    PeerCounts,
    PeerProofs,
    PeerRoster,
    PeerShare,
    Proved,
    Revealed,
    Rostered,
    Round,
    RoundEvent,
    RowsCounted,
    Submitted,
    Summed,
    Tallied,
    Terms,
    Verified,
)

MACHINE: Machine[Round] = Machine(Round, RoundEvent, initial=(Open,), final=(Done, Differed, Aborted))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts

BeforeVerified: TypeAlias = Open | Closed | Closing | Rostered | Proved
BeforeCommitted: TypeAlias = BeforeVerified | Verified | Tallied | Chosen
AfterCommitted: TypeAlias = Revealed | Combined | Concluded | Done | Differed
AfterRoster: TypeAlias = Rostered | Proved | Verified | Tallied | Chosen | Committed | AfterCommitted
PeerEvents: TypeAlias = PeerRoster | PeerProofs | PeerCounts | PeerCommitment | PeerShare | PeerConclusion

BEFORE_REVEALED = get_args(BeforeCommitted | Committed)
"""The states in which no honest peer's share can come: a server sends it only once it has our commitment."""

BEFORE_VERIFIED = get_args(BeforeVerified)
"""Those in which no honest peer's counts can come: a server sends them once it has our proofs, and after its own."""


def step(state: Round, event: Event, terms: Terms) -> Round:
    """Take one event.

    Raises:
        PeerViolationError: the peer contradicts itself or its commitment.
        UnexpectedEvent: the state does not accept the event.
        MisuseError: an evaluation is not the roster's.
    """
    return MACHINE.step(state, event, terms)


# ---- the list is closed and agreed


@MACHINE.transition
def _submit(state: Open, event: Submitted, terms: Terms) -> Open:
    return Open(_entered(state.entries, event))


@MACHINE.transition
def _close(state: Open, event: CloseRound, terms: Terms) -> Closed:
    return Closed(state.entries)


@MACHINE.transition
def _follow(state: Open, event: PeerRoster, terms: Terms) -> Closing | Rostered | Aborted:
    missing = len(event.entries.keys() - state.entries.keys())
    return _agree_if_complete(Closing(state.entries, event.entries, {event.said: event.content()}, missing), terms)


@MACHINE.transition
def _submit_late(state: Closing, event: Submitted, terms: Terms) -> Closing | Rostered | Aborted:
    if event.client not in state.theirs:
        raise UnexpectedEvent(state, event, ACCEPTS)
    entries = _entered(state.entries, event)
    missing = state.missing - (len(entries) - len(state.entries))
    return _agree_if_complete(Closing(entries, state.theirs, state.heard, missing), terms)


@MACHINE.transition
def _stop_waiting(state: Closing, event: GraceOver, terms: Terms) -> Rostered | Aborted:
    return _agree(state.entries, state.theirs, terms, state.heard)


@MACHINE.transition
def _compare_lists(state: Closed, event: PeerRoster, terms: Terms) -> Rostered | Aborted:
    return _agree(state.entries, event.entries, terms, {event.said: event.content()})


# ---- submissions are verified and summed


@MACHINE.transition
def _evaluate(state: Rostered, event: Evaluated, terms: Terms) -> Proved | Verified:
    if not terms.verified:
        return Verified(state.entries, state.roster, state.excluded, {}, state.heard)
    if event.proofs.keys() != state.roster.keys():
        raise MisuseError(f"proofs of the {len(state.roster)} clients on the roster expected, and of nobody else")
    return Proved(state.entries, state.roster, state.excluded, Entries(event.proofs), state.heard)


@MACHINE.transition
def _verify(state: Proved, event: PeerProofs, terms: Terms) -> Verified | Aborted:
    theirs = event.proofs
    if theirs.keys() != state.roster.keys():
        raise PeerViolationError(terms.peer, "sent proofs for other clients than the agreed roster's")
    failed = failed_proofs(state.proofs, event, terms)
    counted = _without(state.roster, failed)
    excluded = state.excluded | failed
    if len(counted) < terms.minimum:
        return Aborted(f"{_clients(counted)} left after verification, at least {terms.minimum} are needed")
    heard = state.heard | {event.said: event.content()}
    return Verified(state.entries, counted, dict(sorted(excluded.items())), state.proofs, heard)


@MACHINE.transition
def _commit(state: Verified | Chosen, event: Summed, terms: Terms) -> Committed:
    if isinstance(state, Verified) and terms.contributors:
        raise UnexpectedEvent(state, event, ACCEPTS)
    counts = state.counts if isinstance(state, Chosen) else ()
    return Committed(
        state.entries, state.counted, state.excluded, state.proofs, event.share, event.nonce, state.heard, counts
    )


# ---- contributors are counted, and rows with too few of them left out


@MACHINE.transition
def _hear_counts_first(state: Verified, event: PeerCounts, terms: Terms) -> Verified:
    if not terms.contributors:
        raise UnexpectedEvent(state, event, ACCEPTS)
    if recall(state.heard, event, terms.peer):
        return state
    heard = state.heard | {event.said: event.content()}
    return Verified(state.entries, state.counted, state.excluded, state.proofs, heard)


@MACHINE.transition
def _count_rows(state: Verified, event: RowsCounted, terms: Terms) -> Tallied | Chosen:
    if not terms.contributors:
        raise UnexpectedEvent(state, event, ACCEPTS)
    tallied = Tallied(state.entries, state.counted, state.excluded, state.proofs, event.counts, state.heard)
    theirs = state.heard.get(PeerCounts.said)
    return tallied if theirs is None else _chosen(tallied, theirs, terms)


@MACHINE.transition
def _choose(state: Tallied, event: PeerCounts, terms: Terms) -> Chosen:
    tallied = msgspec.structs.replace(state, heard=state.heard | {event.said: event.content()})
    return _chosen(tallied, event.counts, terms)


# ---- shares are revealed and combined


@MACHINE.transition
def _reveal(state: Committed, event: PeerCommitment, terms: Terms) -> Revealed:
    heard = state.heard | {event.said: event.content()}
    return Revealed(state.counted, state.excluded, state.share, state.nonce, event.commitment, heard, state.counts)


@MACHINE.transition
def _combine(state: Revealed, event: PeerShare, terms: Terms) -> Combined:
    expected = share_commitment(terms, 1 - terms.server, state.counted, event.share, event.nonce, state.counts)
    if not same(state.peer_commitment, expected):
        raise PeerViolationError(terms.peer, "revealed a share that does not match its commitment")
    heard = state.heard | {event.said: event.content()}
    return Combined(state.counted, state.excluded, state.share, state.nonce, event.share, heard, state.counts)


@MACHINE.transition
def _conclude(state: Combined, event: Applied, terms: Terms) -> Concluded:
    return Concluded(state.share, state.nonce, event.outcome, state.heard)


@MACHINE.transition
def _finish(state: Concluded, event: PeerConclusion, terms: Terms) -> Done | Differed:
    heard = state.heard | {event.said: event.content()}
    if len(event.outcome) != DIGEST_BYTES:
        raise PeerViolationError(terms.peer, f"concludes with {len(event.outcome):,} bytes, which are no digest")
    if state.outcome != event.outcome:
        if not terms.own_rule:
            raise PeerViolationError(terms.peer, "arrived at another outcome from the same shares")
        return Differed(state.outcome, event.outcome, heard)
    return Done(state.outcome, heard)


# ---- the round is aborted


@MACHINE.transition
def _abort(state: BeforeCommitted, event: GaveUp, terms: Terms) -> Aborted:
    return Aborted(shortened(f"S{terms.server} gave up: {event.explanation}"))


@MACHINE.transition
def _follow_abort(state: BeforeCommitted | Committed, event: PeerAbort, terms: Terms) -> Aborted:
    if not event.explanation:  # no report has an empty explanation
        raise PeerViolationError(terms.peer, "aborted the round and does not say why")
    return Aborted(shortened(event.explanation))  # as it was sent, so that both servers print the same reason


# ---- events that change nothing


@MACHINE.repetition
def _said_before(state: Closing | AfterRoster, event: PeerEvents, terms: Terms) -> bool:
    return recall(state.heard, event, terms.peer)


@MACHINE.repetition
def _grace_is_over(state: AfterRoster | Aborted, event: GraceOver, terms: Terms) -> bool:
    """Every submission that was waited for came in time."""
    return True


@MACHINE.repetition
def _aborted_meanwhile(
    state: Aborted, event: PeerEvents | PeerAbort | Evaluated | RowsCounted | Summed, terms: Terms
) -> bool:
    """It was sent or computed before the abort was known."""
    return True


def failed_proofs(ours: Listed, said: PeerProofs, terms: Terms) -> dict[str, str]:
    """The clients of a roster that are not counted, and why: "proof" of their trees, or only "bound" of their update.

    It is found out once for the same lists, however often it is asked for.

    Raises:
        PeerViolationError: an entry of the peer's has not the form that every honest server gives it.
    """
    return said.judged(ours, partial(_failed, ours, said.proofs, terms))


def _failed(ours: Listed, theirs: Listed, terms: Terms) -> dict[str, str]:
    failed: dict[str, str] = {}
    for client, (mine, other) in ((client, (ours[client], theirs[client])) for client in sorted(ours)):
        if terms.bound is not None:
            check_answer(terms.bound, other[DIGEST_BYTES:], terms.peer)
        if not same(mine[:DIGEST_BYTES], other[:DIGEST_BYTES]):
            failed[client] = "proof"
        elif terms.bound is not None and not accepts(terms.bound, mine[DIGEST_BYTES:], other[DIGEST_BYTES:]):
            failed[client] = "bound"
    return failed


def _entered(entries: Listed, event: Submitted) -> Listed:
    known = entries.get(event.client)
    if known is None:
        return Entries(entries).extended(event.client, event.digest)
    if known != event.digest:
        raise PeerViolationError(event.client, "submitted twice, with different content")
    return entries


def _without(roster: Listed, failed: dict[str, str]) -> Listed:
    """The same list where nobody has failed."""
    if not failed:
        return roster
    return Entries({client: entry for client, entry in roster.items() if client not in failed})


def _agree_if_complete(state: Closing, terms: Terms) -> Closing | Rostered | Aborted:
    if not state.missing:
        return _agree(state.entries, state.theirs, terms, state.heard)
    return state


def _clients(entries: Sized) -> str:
    return count_of(len(entries), "client is", "clients are")


def _agree(entries: Listed, theirs: Listed, terms: Terms, heard: Heard) -> Rostered | Aborted:
    ours = dict(entries.items())
    roster = Entries({client: ours[client] for client in sorted(ours) if theirs.get(client) == ours[client]})
    excluded = _excluded(ours, theirs, terms.server)
    if len(roster) < terms.minimum:
        return Aborted(f"{_clients(roster)} in with both servers, at least {terms.minimum} are needed")
    return Rostered(entries, roster, excluded, heard)


def _chosen(state: Tallied, theirs: bytes, terms: Terms) -> Chosen:
    counts = (state.counts, theirs) if terms.server == 0 else (theirs, state.counts)
    return Chosen(state.entries, state.counted, state.excluded, state.proofs, counts, state.heard)


def _excluded(ours: Listed, theirs: Listed, server: int) -> dict[str, str]:
    reasons = {client: "mismatch" for client in ours.keys() & theirs.keys() if ours[client] != theirs[client]}
    reasons |= dict.fromkeys(ours.keys() - theirs.keys(), f"only_s{server}")
    reasons |= dict.fromkeys(theirs.keys() - ours.keys(), f"only_s{1 - server}")
    return dict(sorted(reasons.items()))


MACHINE.complete()
