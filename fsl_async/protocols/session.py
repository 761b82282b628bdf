"""A client's session: trees that stay, and one hint per epoch. The same machine runs on the client and on both servers.

    ABSENT ──Brought──> PLANTED ──Counted──> STANDING ──Hinted──> STANDING ──Hinted──> …
       ^                 │                     │ Brought: a new session, after the client has lost its side
       └────Dropped──────┘                     └──────────────────> PLANTED

Rules:

- A session stands only once the submission that brought its trees was counted: both servers have it, and it is
  proved.
- The epoch only rises. The same hint again is harmless; a second, different one for an epoch is refused, and both
  are named: their difference would be ±(β - β′).

Source: paper §"Updatable Distributed Point Function"; design §6.
"""

from __future__ import annotations

from typing import TypeAlias

from fsl_async.errors import PeerViolationError
from fsl_async.protocols.machine import Event, State, Transitions, UnexpectedEvent, accepts

__all__ = [
    "ACCEPTS",
    "INITIAL",
    "TRANSITIONS",
    "Absent",
    "Brought",
    "Counted",
    "Dropped",
    "Hinted",
    "Planted",
    "Session",
    "Standing",
    "step",
]


class Absent(State, frozen=True):
    """There are no trees."""


class Planted(State, frozen=True):
    """Trees came with a submission; its round is not settled."""

    epoch: int
    hint: bytes


class Standing(State, frozen=True):
    """The trees are proved; the last epoch and the digest of its hint."""

    since: int
    epoch: int
    hint: bytes


Session: TypeAlias = Absent | Planted | Standing


class Brought(Event, frozen=True):
    """A submission in round `epoch` has brought trees, or rides on a retrieval's; by the digest of its public part."""

    epoch: int
    hint: bytes


class Hinted(Event, frozen=True):
    """A hint for an epoch, by the digest of its public part."""

    epoch: int
    hint: bytes


class Counted(Event, frozen=True):
    """A round has counted the client's submission."""

    epoch: int


class Dropped(Event, frozen=True):
    """A round has ended without the client's submission."""

    epoch: int


INITIAL: tuple[type[State], ...] = (Absent,)

TRANSITIONS: Transitions = {
    (Absent, Brought): frozenset({Planted}),
    (Planted, Brought): frozenset({Planted}),
    (Planted, Counted): frozenset({Standing}),
    (Planted, Dropped): frozenset({Absent}),
    (Standing, Brought): frozenset({Planted}),
    (Standing, Hinted): frozenset({Standing}),
    (Standing, Counted): frozenset({Standing}),
    (Standing, Dropped): frozenset({Standing}),
}

ACCEPTS = accepts(Session, TRANSITIONS)


def step(state: Session, event: Event, client: str) -> Session:
    """Take one event.

    Raises:
        PeerViolationError: the epoch does not rise, or an epoch gets a second, different hint.
        UnexpectedEvent: a hint, and no session stands.
    """
    match state, event:
        case Planted(epoch=epoch, hint=hint), Brought() if event.epoch <= epoch:
            return _same_or_refuse(state, event, epoch, hint, client)
        case Standing(epoch=epoch, hint=hint), Brought() if (event.epoch, event.hint) == (epoch, hint):
            raise PeerViolationError(client, f"brought trees in epoch {epoch} after a hint for it; epochs only rise")
        case Standing(epoch=epoch, hint=hint), Brought() | Hinted() if event.epoch <= epoch:
            return _same_or_refuse(state, event, epoch, hint, client)
        case _, Brought(epoch=epoch, hint=hint):
            return Planted(epoch, hint)
        case Standing(since=since), Hinted(epoch=epoch, hint=hint):
            return Standing(since, epoch, hint)
        case Planted(epoch=planted, hint=hint), Counted(epoch=epoch) if planted == epoch:
            return Standing(epoch, epoch, hint)
        case Planted(epoch=planted), Dropped(epoch=epoch) if planted == epoch:
            return Absent()
        case Standing(), Counted() | Dropped():
            return state  # of a hint: the trees stay as they are
    raise UnexpectedEvent(state, event, ACCEPTS)


def _same_or_refuse(state: Session, event: Brought | Hinted, epoch: int, hint: bytes, client: str) -> Session:
    if event.epoch < epoch:
        raise PeerViolationError(
            client, f"gave a hint for epoch {event.epoch} after one for epoch {epoch}; epochs only rise"
        )
    if event.hint != hint:
        raise PeerViolationError(
            client, f"gave two different hints for epoch {epoch}: {hint.hex()[:16]} and {event.hint.hex()[:16]}"
        )
    return state
