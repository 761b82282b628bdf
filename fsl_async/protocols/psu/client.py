"""A client's side of private set union: it learns the union once both servers describe the same one.

Rules:

- A union is believed only as both servers describe it, by block, size and digest: in a round's configuration, or in
  what they sign of the round that has found it.
- What is downloaded from one server is compared with that digest, and any other content is that server's violation.
- A union that is known stays known until the servers describe another one.

To take part in a round that finds the union is a submission; see `ssa.client`.

Source: paper §"Optimisations" (PSU); design §7.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from fsl_async.digests import same
from fsl_async.errors import PeerViolationError
from fsl_async.protocols.machine import Event, Machine, State
from fsl_async.union import UnionBlock

Union: TypeAlias = tuple[UnionBlock, ...]


class Unknown(State, frozen=True, tag="Unknown"):
    """The servers have described no union."""


class Told(State, frozen=True, tag="Told"):
    """Both servers have described the same union; the blocks of which the rows are here are in `here`."""

    union: Union
    here: frozenset[str]


class Known(State, frozen=True, tag="Known"):
    """The rows of every block are here, and are those that both servers describe."""

    union: Union


Learning: TypeAlias = Unknown | Told | Known


class Described(Event, frozen=True, tag="Described"):
    """Both servers have described the union; what S0 says of it, and what S1 does."""

    unions: tuple[Union, Union]


class Downloaded(Event, frozen=True, tag="Downloaded"):
    """A server has sent the rows of a block; by their digest."""

    server: int
    block: str
    digest: bytes


LearningEvent: TypeAlias = Described | Downloaded


class Fetch(msgspec.Struct, frozen=True):
    """Download a block's rows."""

    block: UnionBlock


MACHINE: Machine[Learning] = Machine(Learning, LearningEvent, initial=(Unknown,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Learning, event: Event) -> Learning:
    """Take one event.

    Raises:
        PeerViolationError: the servers describe different unions, or one has sent another than they describe.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event)


@MACHINE.transition
def _learn(state: Unknown, event: Described) -> Told:
    return Told(_described(event), frozenset())


@MACHINE.transition
def _learn_again(state: Told, event: Described) -> Told:
    union = _described(event)
    return state if union == state.union else Told(union, frozenset())


@MACHINE.transition
def _learn_another(state: Known, event: Described) -> Known | Told:
    union = _described(event)
    return state if union == state.union else Told(union, frozenset())


@MACHINE.transition
def _take(state: Told, event: Downloaded) -> Told | Known:
    described = {block.name: block.digest for block in state.union}
    if event.block not in described or not same(event.digest, described[event.block]):
        raise PeerViolationError(f"S{event.server}", f"sent a union of {event.block!r} that is not the announced one")
    here = state.here | {event.block}
    return Known(state.union) if here == set(described) else Told(state.union, here)


MACHINE.complete()


def effects(state: Learning) -> tuple[Fetch, ...]:
    """What is still to be downloaded."""
    match state:
        case Told(union=union, here=here):
            return tuple(Fetch(block) for block in union if block.name not in here)
        case Unknown() | Known():
            return ()
        case _:
            assert_never(state)


def _described(event: Described) -> Union:
    """The union that both servers describe."""
    first, second = event.unions
    if first != second:
        raise PeerViolationError(
            "S0 and S1", f"describe different unions: {_in_words(first)} at S0, {_in_words(second)} at S1"
        )
    return first


def _in_words(union: Union) -> str:
    return ", ".join(f"{block.name} of {block.size} rows ({block.digest.hex()[:16]}…)" for block in union) or "none"
