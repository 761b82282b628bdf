"""What all protocol machines share: frozen states, a declared table, errors that change nothing.

A machine is a module with states (`INITIAL` names those it begins in), events, `TRANSITIONS` (where each event may lead
from each state), `step` (state, event → state) and, where it acts, `effects` (state → what to do). `ACCEPTS` (which
events a state takes) follows from the transitions, and so does docs/machines.md. Rules:

- A state holds exactly what its successors need; an event that a state does not accept raises and nothing has changed.
- A peer's event is remembered by the digest of its content: the same again is harmless, another one is a violation.
- Effects are a function of the state alone, so that a party that restarts performs them again.
- Time, randomness and heavy computation are events and arguments, never calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias, get_args

from fsl_async.errors import FslError, PeerViolationError
from fsl_async.secrecy import Discreet

__all__ = [
    "Event",
    "PeerEvent",
    "State",
    "Table",
    "Transitions",
    "UnexpectedEvent",
    "accepted_later",
    "accepts",
    "held_back",
    "recall",
]


class State(Discreet, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all states."""


class Event(Discreet, frozen=True, tag=True, forbid_unknown_fields=True):
    """The base of all events; one that is not a `PeerEvent` is local and never decoded from a channel."""


class PeerEvent(Event, frozen=True):
    """An event caused by the peer's message; at most one content of each kind is accepted in a round."""

    said: ClassVar[str]

    def content(self) -> bytes:
        """A digest of what the peer said."""
        raise NotImplementedError


Table: TypeAlias = dict[type[State], frozenset[type[Event]]]
"""By state, in the order in which a machine declares them, the events that it accepts."""

Transitions: TypeAlias = Mapping[tuple[type[State], type[Event]], frozenset[type[State]]]
"""By state and accepted event, the states it may lead to."""


def accepts(states: Any, transitions: Transitions) -> Table:
    """The table of a machine, from the union of its states and its transitions."""
    return {state: frozenset(event for source, event in transitions if source is state) for state in get_args(states)}


class UnexpectedEvent(FslError):  # noqa: N818 - an event is what it is about, as in the state machines' prose
    """An event that the current state does not accept; nothing has changed."""

    def __init__(self, state: State, event: Event, table: Table) -> None:
        expected = sorted(kind.__name__ for kind in table[type(state)]) or ["nothing more"]
        super().__init__(f"{type(event).__name__} in state {type(state).__name__}, which accepts {', '.join(expected)}")


def recall(heard: Mapping[str, bytes], event: PeerEvent, peer: str) -> bool:
    """Whether the peer has said exactly this before.

    Raises:
        PeerViolationError: it has said something else in this place before.
    """
    before = heard.get(event.said)
    if before is not None and before != event.content():
        raise PeerViolationError(
            peer,
            f"sent two different {event.said}s for one round ({before.hex()[:16]} and {event.content().hex()[:16]})",
        )
    return before is not None


def held_back(waiting: Sequence[Event], event: Event, peer: str) -> list[Event]:
    """What waits its turn, and an event that is ahead of it: one of a kind, so that a peer cannot fill the memory.

    Raises:
        PeerViolationError: the peer has said something else of this kind before.
    """
    for other in waiting:
        if type(other) is type(event) and other != event:
            said = event.said if isinstance(event, PeerEvent) else type(event).__name__
            raise PeerViolationError(peer, f"sent two different {said}s for one round, and too early")
    return [*waiting, event] if event not in waiting else list(waiting)


def accepted_later(table: Table, state: State, event: Event) -> bool:
    """Whether a state declared after this one accepts the event, so that it may wait its turn."""
    order = list(table)
    later: list[Any] = order[order.index(type(state)) + 1 :]
    return any(type(event) in table[successor] for successor in later)
