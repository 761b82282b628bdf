"""A client's request on one server, put together from the two ways it comes: from the client, and through the carrier.

    EXPECTING ──Direct──> DIRECT_ONLY ──Public──> ASSEMBLED
        └──────Public──> PUBLIC_ONLY ──Direct──────^     (digests differ: MISMATCHED)

The carrier gets the public part from the client and forwards it; the other server gets only its digest from the client.
A carrier that changed the part, or a client that sent two, ends in MISMATCHED on the server that was to be misled:
without this, a carrier could add δ to a hint and read the selected row off the aggregate. Source: design §6.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from fsl_async.digests import same
from fsl_async.protocols.machine import Event, State, Transitions, UnexpectedEvent, accepts

__all__ = [
    "ACCEPTS",
    "INITIAL",
    "TRANSITIONS",
    "Assembled",
    "Assembly",
    "Direct",
    "DirectOnly",
    "Expecting",
    "Mismatched",
    "Public",
    "PublicOnly",
    "known_digest",
    "step",
]


class Expecting(State, frozen=True):
    """Nothing is here yet."""


class DirectOnly(State, frozen=True):
    """The client's own message is here; the carrier's is awaited."""

    public_digest: bytes


class PublicOnly(State, frozen=True):
    """The public part is here; the client's own message is awaited."""

    public_digest: bytes


class Assembled(State, frozen=True):
    """Both are here and agree."""

    public_digest: bytes


class Mismatched(State, frozen=True):
    """Both are here and differ; both digests are kept as evidence."""

    announced: bytes
    received: bytes


Assembly: TypeAlias = Expecting | DirectOnly | PublicOnly | Assembled | Mismatched


class Direct(Event, frozen=True):
    """The client's own message, which announces the public part's digest."""

    public_digest: bytes


class Public(Event, frozen=True):
    """The public part, by the digest of the bytes that came."""

    public_digest: bytes


INITIAL: tuple[type[State], ...] = (Expecting,)

TRANSITIONS: Transitions = {
    (Expecting, Direct): frozenset({DirectOnly}),
    (Expecting, Public): frozenset({PublicOnly}),
    (DirectOnly, Public): frozenset({Assembled, Mismatched}),
    (PublicOnly, Direct): frozenset({Assembled, Mismatched}),
}

ACCEPTS = accepts(Assembly, TRANSITIONS)


def step(state: Assembly, event: Event) -> Assembly:
    """Take one event; the same again is harmless.

    Raises:
        UnexpectedEvent: the state does not accept the event.
    """
    match state, event:
        case Expecting(), Direct(public_digest=announced):
            return DirectOnly(announced)
        case Expecting(), Public(public_digest=received):
            return PublicOnly(received)
        case DirectOnly(public_digest=announced), Public(public_digest=received):
            return _compare(announced, received)
        case PublicOnly(public_digest=received), Direct(public_digest=announced):
            return _compare(announced, received)
        case DirectOnly(public_digest=known) | Assembled(public_digest=known), Direct(public_digest=again) if (
            known == again
        ):
            return state
        case PublicOnly(public_digest=known) | Assembled(public_digest=known), Public(public_digest=again) if (
            known == again
        ):
            return state
        case Mismatched(announced=known), Direct(public_digest=again) if known == again:
            return state
        case Mismatched(received=known), Public(public_digest=again) if known == again:
            return state  # the carrier forwards again whatever it has, and need not be the one that lied
    raise UnexpectedEvent(state, event, ACCEPTS)


def known_digest(state: Assembly) -> bytes:
    """The digest that a state stands by: of two that differ the announced one; empty where nothing is here."""
    match state:
        case DirectOnly(public_digest=known) | PublicOnly(public_digest=known) | Assembled(public_digest=known):
            return known
        case Mismatched(announced=known):
            return known
        case Expecting():
            return b""
        case _:
            assert_never(state)


def _compare(announced: bytes, received: bytes) -> Assembled | Mismatched:
    return Assembled(announced) if same(announced, received) else Mismatched(announced, received)
