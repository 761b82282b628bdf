"""A client's request on one server, assembled from its two halves: the client's own message and the public part.

The carrier gets the public part from the client and forwards it; the other server gets only its digest from the client.
If the carrier changed the part, or the client sent two, the server that was to be misled ends in `Mismatched`. Without
this check a carrier could add δ to a hint and read the selected row off the aggregate.

Source: design §6.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

from fsl_async.digests import same
from fsl_async.protocols.machine import Event, Machine, State


class Expecting(State, frozen=True, tag="Expecting"):
    """Neither half has come."""


class DirectOnly(State, frozen=True, tag="DirectOnly"):
    """The client's own message has come; the public part is awaited."""

    public_digest: bytes


class PublicOnly(State, frozen=True, tag="PublicOnly"):
    """The public part has come; the client's own message is awaited."""

    public_digest: bytes


class Assembled(State, frozen=True, tag="Assembled"):
    """Both have come and agree."""

    public_digest: bytes


class Mismatched(State, frozen=True, tag="Mismatched"):
    """Both have come and differ; both digests are kept as evidence."""

    announced: bytes
    received: bytes


Assembly: TypeAlias = Expecting | DirectOnly | PublicOnly | Assembled | Mismatched


class Direct(Event, frozen=True, tag="Direct"):
    """The client's own message, which announces the public part's digest."""

    public_digest: bytes


class Public(Event, frozen=True, tag="Public"):
    """The public part, by the digest of the bytes that came."""

    public_digest: bytes


AssemblyEvent: TypeAlias = Direct | Public

MACHINE: Machine[Assembly] = Machine(Assembly, AssemblyEvent, initial=(Expecting,), final=(Assembled, Mismatched))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts
step = MACHINE.step


@MACHINE.transition
def _take_direct(state: Expecting, event: Direct) -> DirectOnly:
    return DirectOnly(event.public_digest)


@MACHINE.transition
def _take_public(state: Expecting, event: Public) -> PublicOnly:
    return PublicOnly(event.public_digest)


@MACHINE.transition
def _add_public(state: DirectOnly, event: Public) -> Assembled | Mismatched:
    return _compare(announced=state.public_digest, received=event.public_digest)


@MACHINE.transition
def _add_direct(state: PublicOnly, event: Direct) -> Assembled | Mismatched:
    return _compare(announced=event.public_digest, received=state.public_digest)


@MACHINE.repetition
def _is_same_direct(state: DirectOnly | Assembled, event: Direct) -> bool:
    return event.public_digest == state.public_digest


@MACHINE.repetition
def _is_same_public(state: PublicOnly | Assembled, event: Public) -> bool:
    return event.public_digest == state.public_digest


@MACHINE.repetition
def _is_same_mismatch(state: Mismatched, event: Direct | Public) -> bool:
    """The carrier forwards again whatever it has; it need not be the one that lied."""
    return event.public_digest == (state.announced if isinstance(event, Direct) else state.received)


def known_digest(state: Assembly) -> bytes:
    """The digest of the request's public part: of two that differ the announced one; empty where nothing has come."""
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


MACHINE.complete()
