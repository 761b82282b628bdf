"""The rules of a round of retrievals: from one state to the next. What they keep is said in the package."""

from __future__ import annotations

from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import shortened
from fsl_async.protocols.ending import CloseRound, GaveUp, PeerAbort, PeerConclusion
from fsl_async.protocols.machine import Event, Machine, recall
from fsl_async.protocols.psr.states import Aborted, Closed, Concluded, Done, Open, PeerClosed, Round, RoundEvent, Terms

MACHINE: Machine[Round] = Machine(Round, RoundEvent, initial=(Open,), final=(Done, Aborted))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Round, event: Event, terms: Terms) -> Round:
    """Take one event.

    Raises:
        PeerViolationError: the peer contradicts itself, or has another outcome.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event, terms)


@MACHINE.transition
def _close(state: Open, event: CloseRound, terms: Terms) -> Closed:
    return Closed()


@MACHINE.transition
def _conclude(state: Open | Closed, event: PeerClosed, terms: Terms) -> Concluded:
    return Concluded({event.said: event.content()})


@MACHINE.transition
def _finish(state: Concluded, event: PeerConclusion, terms: Terms) -> Done:
    if event.outcome != terms.outcome:
        raise PeerViolationError(terms.peer, "has another outcome of a round that only answered retrievals")
    return Done(state.heard | {event.said: event.content()})


@MACHINE.transition
def _abort(state: Open | Closed, event: GaveUp, terms: Terms) -> Aborted:
    return Aborted(shortened(f"S{terms.server} gave up: {event.explanation}"))


@MACHINE.transition
def _follow_abort(state: Open | Closed | Concluded, event: PeerAbort, terms: Terms) -> Aborted:
    if not event.explanation:  # no report has an empty explanation
        raise PeerViolationError(terms.peer, "aborted the round and does not say why")
    return Aborted(shortened(event.explanation))  # as it was sent, so that both servers print the same reason


@MACHINE.repetition
def _said_before(state: Concluded | Done, event: PeerClosed | PeerConclusion, terms: Terms) -> bool:
    return recall(state.heard, event, terms.peer)


@MACHINE.repetition
def _aborted_meanwhile(state: Aborted, event: PeerClosed | PeerConclusion | PeerAbort, terms: Terms) -> bool:
    """It was sent before the abort was known."""
    return True


MACHINE.complete()
