"""Which rows the next round works on: all of them, or the union that a round of its own has found.

    EVERYTHING ──MainSettled──> EVERYTHING                                 (alignment="all")

    SEEKING ──UnionFound──> ALIGNED ──MainSettled──> SEEKING               (alignment="union", selection="adaptive")
       └──UnionLost──> SEEKING  └────MainSettled──> ALIGNED                (… selection="fixed": the trees stay)

Both servers run it; they agree because they agree on every round's outcome, of which the union is part.

Source: paper §"Optimisations" (PSU); design §7.
"""

from __future__ import annotations

from typing import TypeAlias

from fsl_async.protocols.machine import Event, State, Transitions, UnexpectedEvent, accepts
from fsl_async.task import Task
from fsl_async.union import UnionBlock

__all__ = [
    "ACCEPTS",
    "INITIAL",
    "TRANSITIONS",
    "Aligned",
    "Alignment",
    "Everything",
    "MainSettled",
    "Seeking",
    "UnionFound",
    "UnionLost",
    "begin",
    "step",
]


class Everything(State, frozen=True):
    """Rounds work on all rows."""


class Seeking(State, frozen=True):
    """The next round finds the union."""


class Aligned(State, frozen=True):
    """The next round works on a union; `stays` tells whether later ones do too."""

    union: tuple[UnionBlock, ...]
    stays: bool


Alignment: TypeAlias = Everything | Seeking | Aligned


class UnionFound(Event, frozen=True):
    """A union round is done."""

    union: tuple[UnionBlock, ...]
    stays: bool


class UnionLost(Event, frozen=True):
    """A union round was aborted."""


class MainSettled(Event, frozen=True):
    """A main round is done or aborted."""


INITIAL: tuple[type[State], ...] = (Everything, Seeking)

TRANSITIONS: Transitions = {
    (Everything, MainSettled): frozenset({Everything}),
    (Seeking, UnionFound): frozenset({Aligned}),
    (Seeking, UnionLost): frozenset({Seeking}),
    (Aligned, MainSettled): frozenset({Seeking, Aligned}),
}

ACCEPTS = accepts(Alignment, TRANSITIONS)


def begin(task: Task) -> Alignment:
    """The state before a task's first round."""
    return Seeking() if task.alignment == "union" else Everything()


def step(state: Alignment, event: Event) -> Alignment:
    """Take one event.

    Raises:
        UnexpectedEvent: the state does not accept the event.
    """
    match state, event:
        case Everything(), MainSettled():
            return state
        case Seeking(), UnionFound(union=union, stays=stays):
            return Aligned(union, stays)
        case Seeking(), UnionLost():
            return state
        case Aligned(stays=stays), MainSettled():
            return state if stays else Seeking()
    raise UnexpectedEvent(state, event, ACCEPTS)
