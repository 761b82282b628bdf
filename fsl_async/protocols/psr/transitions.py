"""A round of retrievals on one server: its states and its own event, its rules, and what a server does in each state.

What the rules keep is said in the package. A message stays among the effects until an answer proves that the peer has
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias, assert_never

from fsl_async.errors import PeerViolationError
from fsl_async.foreign_text import shortened
from fsl_async.protocols.ending import (
    CloseRound,
    GaveUp,
    PeerAbort,
    PeerConclusion,
    RoundState,
    Send,
    Step,
)
from fsl_async.protocols.machine import Event, Machine, PeerEvent, recall
from fsl_async.wire.messages import Abort, Closing, Conclusion

Heard: TypeAlias = dict[str, bytes]
"""By what it was, the digest of what the peer has said."""


@dataclass(frozen=True)
class Terms:
    """What is fixed for the whole round; `outcome` is the digest of the only outcome that it can have."""

    round_id: bytes
    server: int
    outcome: bytes

    @property
    def peer(self) -> str:
        """The other server's name."""
        return f"S{1 - self.server}"


# ---- states


class Open(RoundState, frozen=True, tag="Open"):
    """Clients retrieve."""

    activity = "collecting"
    waits_for = "the end of its time"
    said = Step.TOSS_REVEAL


class Closed(RoundState, frozen=True, tag="Closed"):
    """We answer no further retrieval, and have said so; the peer's word is awaited."""

    activity = "waiting"
    waits_for = "{peer} to close it, too"
    said = Step.CLOSING
    may_give_up = True


class Concluded(RoundState, frozen=True, tag="Concluded"):
    """Both have closed; our outcome is sent, the peer's is awaited. This server cannot abandon the round any more."""

    activity = "waiting"
    waits_for = "{peer}'s outcome"
    said = Step.CONCLUSION

    heard: Heard


class Done(RoundState, frozen=True, tag="Done"):
    """Both servers know that the round is over."""

    heard: Heard


class Aborted(RoundState, frozen=True, tag="Aborted"):
    """Aborted before both had closed."""

    explanation: str


Round: TypeAlias = Open | Closed | Concluded | Done | Aborted


def heard_in(state: Round) -> Heard:
    """What the peer has said, as far as the state still knows it."""
    match state:
        case Concluded() | Done():
            return state.heard
        case _:
            return {}


# ---- events


class PeerClosed(PeerEvent, frozen=True, tag="PeerClosed"):
    """The peer answers no further retrieval."""

    said: ClassVar[str] = "closing"

    def content(self) -> bytes:
        """Nothing: it can only be said in one way."""
        return b""


RoundEvent: TypeAlias = CloseRound | GaveUp | PeerClosed | PeerConclusion | PeerAbort


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


def effects(state: Round, terms: Terms) -> tuple[Send, ...]:
    """What a server in this state does, and does again after a restart."""
    match state:
        case Open():
            return ()
        case Closed():
            return (Send(Closing(terms.round_id)),)
        case Concluded():
            return (Send(Closing(terms.round_id)), Send(Conclusion(terms.round_id, terms.outcome)))
        case Done():
            return (Send(Conclusion(terms.round_id, terms.outcome)),)
        case Aborted():
            return (Send(Abort(terms.round_id, state.explanation)),)
        case _:
            assert_never(state)
