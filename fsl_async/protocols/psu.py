"""Which rows the next round works on: all of them, or the union that a round of its own has found.

With `alignment="all"` the state stays `Everything`. With `alignment="union"` a union round leads from `Seeking` to
`Aligned`; after the main round the next union is sought (`selection="adaptive"`), or the union stays, because the trees
do (`selection="fixed"`).

Both servers run this machine. They agree because they agree on every round's outcome, of which the union is part.

Source: paper §"Optimisations" (PSU); design §7.
"""

from __future__ import annotations

from typing import TypeAlias

from fsl_async.protocols.machine import Event, Machine, State
from fsl_async.task import Task
from fsl_async.union import UnionBlock


class Everything(State, frozen=True):
    """Rounds work on all rows."""


class Seeking(State, frozen=True):
    """The next round finds the union."""


class Aligned(State, frozen=True):
    """The next round works on a union; `stays` says whether later ones do too."""

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


AlignmentEvent: TypeAlias = UnionFound | UnionLost | MainSettled

MACHINE: Machine[Alignment] = Machine(Alignment, AlignmentEvent, initial=(Everything, Seeking))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts


def begin(task: Task) -> Alignment:
    """The state before a task's first round."""
    return Seeking() if task.alignment == "union" else Everything()


def step(state: Alignment, event: Event) -> Alignment:
    """Take one event.

    Raises:
        UnexpectedEvent: the state does not accept the event.
    """
    return MACHINE.step(state, event)


@MACHINE.transition
def _stay(state: Everything, event: MainSettled) -> Everything:
    return state


@MACHINE.transition
def _align(state: Seeking, event: UnionFound) -> Aligned:
    return Aligned(event.union, event.stays)


@MACHINE.transition
def _seek_again(state: Seeking, event: UnionLost) -> Seeking:
    return state


@MACHINE.transition
def _settle(state: Aligned, event: MainSettled) -> Aligned | Seeking:
    return state if state.stays else Seeking()


MACHINE.complete()
