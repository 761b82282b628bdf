"""The states between rounds, the rules from one to the next, and what each of them makes the next round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, assert_never

from fsl_async.protocols.machine import Event, Machine, State
from fsl_async.task import ProtocolName, Task
from fsl_async.union import UnionBlock


class Everything(State, frozen=True, tag="Everything"):
    """Rounds work on all rows."""


class Seeking(State, frozen=True, tag="Seeking"):
    """The next round finds the union."""


class Aligned(State, frozen=True, tag="Aligned"):
    """The next round works on a union; `stays` says whether later ones do too."""

    union: tuple[UnionBlock, ...]
    stays: bool


class Found(State, frozen=True, tag="Found"):
    """The round of that id has found a union, for clients to read; the next round finds the next one."""

    round_id: bytes


Alignment: TypeAlias = Everything | Seeking | Aligned | Found


class UnionFound(Event, frozen=True, tag="UnionFound"):
    """A union round is done, for rounds to be aligned on it."""

    union: tuple[UnionBlock, ...]
    stays: bool


class UnionPublished(Event, frozen=True, tag="UnionPublished"):
    """A union round is done, for clients to read."""

    round_id: bytes


class UnionLost(Event, frozen=True, tag="UnionLost"):
    """A union round was aborted."""


class MainSettled(Event, frozen=True, tag="MainSettled"):
    """A round on the union is done or aborted."""


AlignmentEvent: TypeAlias = UnionFound | UnionPublished | UnionLost | MainSettled

MACHINE: Machine[Alignment] = Machine(Alignment, AlignmentEvent, initial=(Everything, Seeking))
TRANSITIONS, ACCEPTS = MACHINE.transitions, MACHINE.accepts
step = MACHINE.step


@dataclass(frozen=True)
class Next:
    """What the next round runs.

    Attributes:
        protocol: which protocol.
        union: by sparse block, the union that the round is aligned on; empty where it is not aligned.
        found: the id of the round that found the last union for clients to read; empty where there is none.
    """

    protocol: ProtocolName
    union: tuple[UnionBlock, ...] = ()
    found: bytes = b""


def begin(task: Task) -> Alignment:
    """The state before a task's first round."""
    return Seeking() if task.finds_unions else Everything()


def effects(state: Alignment, task: Task) -> Next:
    """What the round after this state runs."""
    match state:
        case Everything():
            return Next(task.protocol)
        case Seeking():
            return Next("psu")
        case Aligned(union=union):
            return Next(task.protocol, union=union)
        case Found(round_id=round_id):
            return Next("psu", found=round_id)
        case _:
            assert_never(state)


@MACHINE.transition
def _stay(state: Everything, event: MainSettled) -> Everything:
    return state


@MACHINE.transition
def _align(state: Seeking, event: UnionFound) -> Aligned:
    return Aligned(event.union, event.stays)


@MACHINE.transition
def _publish(state: Seeking | Found, event: UnionPublished) -> Found:
    return Found(event.round_id)


@MACHINE.transition
def _seek_again(state: Seeking, event: UnionLost) -> Seeking:
    return state


@MACHINE.transition
def _keep_the_last(state: Found, event: UnionLost) -> Found:
    return state


@MACHINE.transition
def _settle(state: Aligned, event: MainSettled) -> Aligned | Seeking:
    return state if state.stays else Seeking()


MACHINE.complete()
