"""Records which transitions the protocol machines take, and in which process.

Within `listening`, the `step` functions of the machines are wrapped so that every step is reported. Nothing else in the
laboratory reaches into the machines, and the machines do not know that they are observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

from fsl_async import protocols
from fsl_async.protocols.machine import Event, State
from parties.testing.processes import Life, current_life

__all__ = ["MACHINES", "Step", "Transition", "declared", "listening"]

MACHINES: dict[str, ModuleType] = {name: getattr(protocols, name) for name in protocols.__all__ if name != "machine"}


class Transition(NamedTuple):
    """A transition of a machine, by the names of its parts."""

    machine: str
    state: str
    event: str
    after: str

    def __str__(self) -> str:
        return f"{self.machine}: {self.state} ──{self.event}──> {self.after}"


class Step(NamedTuple):
    """A step that a machine has taken in a process."""

    life: Life
    transition: Transition
    state: State
    event: Event
    after: State


def declared(machine: str) -> list[Transition]:
    """All transitions in a machine's table, sorted."""
    table = MACHINES[machine].TRANSITIONS
    return sorted(
        Transition(machine, state.__name__, event.__name__, after.__name__)
        for (state, event), targets in table.items()
        for after in targets
    )


@contextmanager
def listening(hear: Callable[[Step], None]) -> Iterator[None]:
    """Within this context, `hear` is called with every step that the machines' tables declare."""
    before = {name: machine.step for name, machine in MACHINES.items()}
    for name, machine in MACHINES.items():
        machine.step = _heard(name, machine, before[name], hear)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for name, machine in MACHINES.items():
            machine.step = before[name]  # type: ignore[attr-defined]


def _heard(
    name: str, machine: ModuleType, step: Callable[..., State], hear: Callable[[Step], None]
) -> Callable[..., State]:
    transitions = machine.TRANSITIONS

    def heard(state: State, event: Event, *rest: Any) -> State:
        after = step(state, event, *rest)
        life = current_life()
        if life is not None and life.alive and (type(state), type(event)) in transitions:
            transition = Transition(name, type(state).__name__, type(event).__name__, type(after).__name__)
            hear(Step(life, transition, state, event, after))
        return after

    return heard
