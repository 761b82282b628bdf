"""Records which transitions the protocol machines take, and in which process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from fsl_async.protocols.machine import Event, Machine, Observe, State
from parties.testing.processes import Life, current_life


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


def transitions_of(name: str, machine: Machine[Any]) -> list[Transition]:
    """All transitions in a machine's table, sorted, under the name by which faults and charts call the machine."""
    return sorted(
        Transition(name, state.__name__, event.__name__, after.__name__)
        for (state, event), targets in machine.transitions.items()
        for after in targets
    )


@contextmanager
def listening(hear: Callable[[Step], None], machines: Mapping[str, Machine[Any]]) -> Iterator[None]:
    """Within this context, `hear` is called with every transition that a process takes in these machines."""
    with ExitStack() as stack:
        for name, machine in machines.items():
            stack.enter_context(machine.observed(_heard(name, hear)))
        yield


def _heard(name: str, hear: Callable[[Step], None]) -> Observe:
    def heard(state: State, event: Event, after: State) -> None:
        life = current_life()
        if life is not None and life.alive:
            transition = Transition(name, type(state).__name__, type(event).__name__, type(after).__name__)
            hear(Step(life, transition, state, event, after))

    return heard
