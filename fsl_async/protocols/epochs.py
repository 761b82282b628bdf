"""A client's session: trees that stay, and one hint per epoch. The same machine runs on the client and on both servers.

Rules:

- A session is established once the submission that brought its trees was counted: both servers have it, and it is
  proved.
- Trees that come later begin a new session, after the client has lost its side of the old one.
- The epoch only rises. The same hint again is harmless; a second, different one for an epoch is refused, and both
  are named: their difference would be ±(β - β′).

Source: paper §"Updatable Distributed Point Function"; design §6.
"""

from __future__ import annotations

from typing import TypeAlias

from fsl_async.errors import PeerViolationError
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent


class Absent(State, frozen=True, tag="Absent"):
    """There are no trees."""


class Planted(State, frozen=True, tag="Planted"):
    """Trees came with a submission; its round is not settled."""

    epoch: int
    hint: bytes


class Established(State, frozen=True, tag="Established"):
    """The trees are proved; the last epoch and the digest of its hint. `since` is the epoch that brought the trees."""

    since: int
    epoch: int
    hint: bytes


Session: TypeAlias = Absent | Planted | Established


class Brought(Event, frozen=True, tag="Brought"):
    """A submission in round `epoch` has brought trees, or rides on a retrieval's; by the digest of its public part."""

    epoch: int
    hint: bytes


class Hinted(Event, frozen=True, tag="Hinted"):
    """A hint for an epoch, by the digest of its public part."""

    epoch: int
    hint: bytes


class Counted(Event, frozen=True, tag="Counted"):
    """A round has counted the client's submission."""

    epoch: int


class Dropped(Event, frozen=True, tag="Dropped"):
    """A round has ended without the client's submission."""

    epoch: int


SessionEvent: TypeAlias = Brought | Hinted | Counted | Dropped

MACHINE: Machine[Session] = Machine(Session, SessionEvent, initial=(Absent,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Session, event: Event, client: str) -> Session:
    """Take one event.

    Raises:
        PeerViolationError: the epoch does not rise, or an epoch gets a second, different hint.
        UnexpectedEvent: a hint, and no session is established.
    """
    return MACHINE.step(state, event, client)


@MACHINE.transition
def _begin(state: Absent, event: Brought, client: str) -> Planted:
    return Planted(event.epoch, event.hint)


@MACHINE.transition
def _bring_again(state: Planted, event: Brought, client: str) -> Planted:
    if event.epoch <= state.epoch:
        _check_repeated(state, event, client)
        return state
    return Planted(event.epoch, event.hint)


@MACHINE.transition
def _establish(state: Planted, event: Counted, client: str) -> Established:
    _check_epoch(state, event)
    return Established(event.epoch, event.epoch, state.hint)


@MACHINE.transition
def _drop(state: Planted, event: Dropped, client: str) -> Absent:
    _check_epoch(state, event)
    return Absent()


@MACHINE.transition
def _replace(state: Established, event: Brought, client: str) -> Planted:
    if event.epoch <= state.epoch:
        _check_repeated(state, event, client)
        raise PeerViolationError(client, f"brought trees in epoch {event.epoch} after a hint for it; epochs only rise")
    return Planted(event.epoch, event.hint)


@MACHINE.transition
def _hint(state: Established, event: Hinted, client: str) -> Established:
    if event.epoch <= state.epoch:
        _check_repeated(state, event, client)
        return state
    return Established(state.since, event.epoch, event.hint)


@MACHINE.transition
def _keep(state: Established, event: Counted | Dropped, client: str) -> Established:
    """The trees stay whether or not a hint was counted."""
    return state


def _check_epoch(state: Planted, event: Counted | Dropped) -> None:
    if event.epoch != state.epoch:
        raise UnexpectedEvent(state, event, ACCEPTS)


def _check_repeated(state: Planted | Established, event: Brought | Hinted, client: str) -> None:
    """Refuse what is not the last hint again."""
    if event.epoch < state.epoch:
        raise PeerViolationError(
            client, f"gave a hint for epoch {event.epoch} after one for epoch {state.epoch}; epochs only rise"
        )
    if event.hint != state.hint:
        raise PeerViolationError(
            client,
            f"gave two different hints for epoch {state.epoch}: {state.hint.hex()[:16]} and {event.hint.hex()[:16]}",
        )


MACHINE.complete()
