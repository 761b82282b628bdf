"""A client's side of secure submodel aggregation in one round: one submission, and what became of it.

Rules:

- One submission per round; its bytes are fixed before the first of them is sent, and a repeat is the same bytes.
- It is done only with both servers' receipts for its digest, or with its round's outcome. Once it is on its way, a
  server's statement that the round is gone ends nothing.
- Whether it rides on a retrieval's trees is decided by the task and by whether there was a retrieval, never by the rows
  themselves.

A client that was restarted, or has a new connection, sends to each server that owes its receipt; see `effects`.

Source: paper §"Basic Protocols" (SSA); design §6, §9.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from fsl_async.errors import PeerViolationError
from fsl_async.protocols.entry import Leave, RoundGone
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent


class Away(State, frozen=True, tag="Away"):
    """In no round that takes this client's submission."""


class Ready(State, frozen=True, tag="Ready"):
    """In a round, and nothing was submitted."""


class Drafted(State, frozen=True, tag="Drafted"):
    """The submission's bytes are stored, and may be on their way."""

    digest: bytes


class HalfReceipted(State, frozen=True, tag="HalfReceipted"):
    """One server has acknowledged the submission."""

    digest: bytes
    server: int


class Submitted(State, frozen=True, tag="Submitted"):
    """Both servers have acknowledged the submission."""

    digest: bytes


class Over(State, frozen=True, tag="Over"):
    """The submission's round has ended, and this client knows how."""

    digest: bytes


Submission: TypeAlias = Away | Ready | Drafted | HalfReceipted | Submitted | Over


class Entered(Event, frozen=True, tag="Entered"):
    """The client has entered a round that takes submissions."""


class Submit(Event, frozen=True, tag="Submit"):
    """The caller submits an update, known by its digest."""

    digest: bytes


class Receipted(Event, frozen=True, tag="Receipted"):
    """A server has acknowledged a submission; its signature has been checked."""

    server: int
    digest: bytes


class Finish(Event, frozen=True, tag="Finish"):
    """Both servers have said how the round ended."""


SubmissionEvent: TypeAlias = Entered | Submit | Receipted | Finish | RoundGone | Leave


class Deliver(msgspec.Struct, frozen=True):
    """Send the submission to a server, and wait for its receipt."""

    server: int


class Learn(msgspec.Struct, frozen=True):
    """Ask a server how the round has ended."""

    server: int


Effect: TypeAlias = Deliver | Learn

MACHINE: Machine[Submission] = Machine(Submission, SubmissionEvent, initial=(Away,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Submission, event: Event) -> Submission:
    """Take one event.

    Raises:
        PeerViolationError: a server acknowledges what was not sent.
        UnexpectedEvent: the state does not accept the event: a second submission, for instance.
    """
    return MACHINE.step(state, event)


@MACHINE.transition
def _enter(state: Away | Over, event: Entered) -> Ready:
    return Ready()


@MACHINE.transition
def _submit(state: Ready, event: Submit) -> Drafted:
    return Drafted(event.digest)


@MACHINE.transition
def _acknowledge(state: Drafted, event: Receipted) -> HalfReceipted:
    _check_sent(state, event)
    return HalfReceipted(state.digest, event.server)


@MACHINE.transition
def _acknowledge_too(state: HalfReceipted, event: Receipted) -> Submitted:
    _check_sent(state, event)
    if event.server == state.server:
        raise UnexpectedEvent(state, event, ACCEPTS)
    return Submitted(state.digest)


@MACHINE.transition
def _finish(state: Drafted | HalfReceipted | Submitted, event: Finish) -> Over:
    return Over(state.digest)


@MACHINE.transition
def _lose(state: Ready, event: RoundGone) -> Away:
    return Away()


@MACHINE.transition
def _leave(state: Ready | Drafted | HalfReceipted | Submitted, event: Leave) -> Away:
    return Away()


MACHINE.complete()


def effects(state: Submission) -> tuple[Effect, ...]:
    """What is still to be asked of which server."""
    match state:
        case Drafted():
            return Deliver(0), Deliver(1)
        case HalfReceipted(server=server):
            return (Deliver(1 - server),)
        case Submitted():
            return Learn(0), Learn(1)
        case Away() | Ready() | Over():
            return ()
        case _:
            assert_never(state)


def _check_sent(state: Drafted | HalfReceipted, event: Receipted) -> None:
    if event.digest != state.digest:
        raise PeerViolationError(f"S{event.server}", "acknowledged another submission than the one sent")
