"""A client that enters a round, and leaves it.

Rules:

- A round is entered only when both servers announce the same configuration; the first field that differs is named.
- In a round that is only for those that were drawn of the clients that asked, both servers say whether this one is.
- The server that is behind is asked again: an announcement of an earlier round than the other server's is passed over.
- A client that is done with a round, or whose round is gone, is `Outside` again, and enters no round up to that one.

What a client does in the round is in `psr.client`, `ssa.client` and `psu.client`; `client` is all of them together.

Source: paper §"Basic Protocols"; design §9.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import msgspec

from fsl_async.config import RoundConfig
from fsl_async.differences import first_difference
from fsl_async.errors import PeerViolationError
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent


class Outside(State, frozen=True, tag="Outside"):
    """In no round; the next one is the first after number `after`."""

    after: int


class HalfEntered(State, frozen=True, tag="HalfEntered"):
    """One server has announced its configuration."""

    after: int
    server: int
    config: RoundConfig
    drawn: bool = True


class Undrawn(State, frozen=True, tag="Undrawn"):
    """Both servers announced the same configuration, and that this client is not drawn for the round."""

    config: RoundConfig


class Inside(State, frozen=True, tag="Inside"):
    """Both servers announced the same configuration."""

    config: RoundConfig


Entry: TypeAlias = Outside | HalfEntered | Undrawn | Inside


class Announced(Event, frozen=True, tag="Announced"):
    """A server's configuration of an open round, and whether this client may take part in it."""

    server: int
    config: RoundConfig
    drawn: bool = True


class RoundGone(Event, frozen=True, tag="RoundGone"):
    """A server refused a request because the round is over, and nothing was submitted in it."""


class Leave(Event, frozen=True, tag="Leave"):
    """The client leaves this round for the next one."""


EntryEvent: TypeAlias = Announced | RoundGone | Leave


class Hear(msgspec.Struct, frozen=True):
    """Wait for a server's announcement of a round after number `after`."""

    server: int
    after: int


class HearBoth(msgspec.Struct, frozen=True):
    """Wait for both servers' announcements at once."""

    after: int


MACHINE: Machine[Entry] = Machine(Entry, EntryEvent, initial=(Outside,))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def step(state: Entry, event: Event) -> Entry:
    """Take one event.

    Raises:
        PeerViolationError: the servers announce different rounds of one number.
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event)


@MACHINE.transition
def _half_enter(state: Outside, event: Announced) -> HalfEntered:
    return HalfEntered(state.after, event.server, event.config, event.drawn)


@MACHINE.transition
def _enter(state: HalfEntered, event: Announced) -> HalfEntered | Undrawn | Inside:
    if event.server == state.server:
        raise UnexpectedEvent(state, event, ACCEPTS)
    if event.config.number > state.config.number:
        return HalfEntered(state.after, event.server, event.config, event.drawn)
    if event.config.number < state.config.number:
        return state  # the other server was a round ahead: this announcement is stale
    difference = first_difference(state.config, event.config)
    if difference is not None:
        field, first, second = difference
        names = (f"S{state.server}", f"S{event.server}")
        raise PeerViolationError(
            " and ".join(sorted(names)),
            f"announce different rounds: {field} is {first} at {names[0]}, {second} at {names[1]}",
        )
    if state.drawn != event.drawn:
        drawn, other = (state.server, event.server) if state.drawn else (event.server, state.server)
        raise PeerViolationError(
            " and ".join(sorted((f"S{drawn}", f"S{other}"))),
            f"contradict each other: S{drawn} says that this client is drawn for round {state.config.number}, S{other} "
            "that it is not",
        )
    return Inside(state.config) if state.drawn else Undrawn(state.config)


@MACHINE.transition
def _step_back(state: HalfEntered, event: Leave) -> Outside:
    return Outside(state.after)


@MACHINE.transition
def _leave(state: Inside, event: RoundGone | Leave) -> Outside:
    return Outside(state.config.number)


@MACHINE.transition
def _pass_over(state: Undrawn, event: Leave) -> Outside:
    return Outside(state.config.number)


MACHINE.complete()


def effects(state: Entry, *, drawn: bool = False) -> tuple[Hear | HearBoth, ...]:
    """What is still to be asked of which server before a round is entered.

    Where clients are `drawn`, both are asked at once: a client that asks one alone is not drawn.
    """
    match state:
        case Outside(after=after) if drawn:
            return (HearBoth(after),)
        case Outside(after=after):
            return (Hear(0, after),)
        case HalfEntered(server=server, config=config):
            return (Hear(1 - server, config.number - 1),)
        case Undrawn() | Inside():
            return ()
        case _:
            assert_never(state)
