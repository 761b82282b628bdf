"""A laboratory for protocols of your own: any actors, on simulated hosts, under a plan of faults.

    async with laboratory({"ann": ann, "bob": bob}, {"auction": auction}, seed=7, faults=[...]) as lab:
        await lab.wait_told("ann", "bob")
    print(Chart.of(lab))

Each actor is a process with a disk of its own. It is started again, with what its disk has kept, when it is killed, and
a second after it has ended because the network or its disk failed. One seed gives one transcript.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import ModuleType
from typing import Any, TypeAlias, get_args

from fsl_async.errors import MisuseError
from fsl_async.protocols.machine import Machine
from fsl_async.randomness import SeededSource
from parties.compute import InlineLane
from parties.host import Actor, Host
from parties.testing.chart.legend import Legend
from parties.testing.faults import AtPeerTransition, AtTransition, Crash, FaultBase, Moment
from parties.testing.processes import Life
from parties.testing.recorder import Transition, transitions_of
from parties.testing.surroundings import HORIZON, Surroundings, entered, refuse_unknown
from parties.watch import Note
from transport import Kind

MachineOrModule: TypeAlias = Machine[Any] | ModuleType
"""A machine, or a module that has it as `MACHINE`."""


class Laboratory(Surroundings):
    """Actors as simulated processes; made by `laboratory`.

    Attributes:
        told: what the actors have told, in order, with the time and the party's name.

    And those of all simulated processes: `seed`, `injector`, `processes`, `disks`, `transcript`, `story`, `ended`,
    `steps`; see `parties.testing.surroundings`.
    """

    def __init__(
        self,
        actors: Mapping[str, Actor],
        machines: Mapping[str, Machine[Any]],
        seed: int,
        faults: Sequence[FaultBase],
        horizon: float,
    ) -> None:
        super().__init__(seed, faults, machines, horizon, Legend(actors))
        self.told: list[tuple[float, str, Any]] = []
        self._actors = actors
        self._left: set[str] = set()

    def begin(self) -> None:
        """Start all actors."""
        for name, actor in self._actors.items():
            self.keep(name, partial(self._live, actor))

    def told_by(self, party: str) -> list[Any]:
        """What one actor has told in all its lives, in order."""
        return [told for _, name, told in self.told if name == party]

    async def wait_told(self, *parties: str) -> None:
        """Wait until each of these parties has told something; without names, until all have."""
        awaited = parties or tuple(self._actors)
        await self.wait_until(lambda: all(self.told_by(name) for name in awaited))

    async def wait_left(self, *parties: str) -> None:
        """Wait until the actors of these parties have returned; without names, all."""
        awaited = parties or tuple(self._actors)
        await self.wait_until(lambda: all(name in self._left for name in awaited))

    async def _live(self, actor: Actor, life: Life) -> None:
        name = life.process.name
        await actor(
            Host(
                name=name,
                transport=self.wires,
                store=await self.open_disk(life),
                clock=partial(self.wall_clock, name),
                randomness=SeededSource(self.seed, name, str(life.number)),
                lane=InlineLane(),
                kind=Kind.SIMULATION,
                tell=partial(self._hear, life),
                watch=partial(self._watch, life),
            )
        )
        self._left.add(name)

    def _hear(self, life: Life, told: object) -> None:
        if life.alive:
            self.told.append((self.now, life.process.name, told))
            self.tell(life.process.name, told)
            self._changed.set()

    def _watch(self, life: Life, note: Note) -> None:
        if life.alive:
            self.note(life.process.name, note)
            self.wires.announce(note)


def every_crash(
    parties: Iterable[str], machines: Mapping[str, MachineOrModule], down: float = 1.0, moments: Sequence[Moment] = ()
) -> list[Crash]:
    """A crash of each party at each transition of each machine, around its commit and its first message.

    Args:
        parties: who crashes.
        machines: by name, as for `laboratory`.
        down: seconds until it starts again.
        moments: which moments of a transition; all five if none are named.
    """
    return [
        Crash(party, AtTransition(*transition, moment), down)
        for party in parties
        for name, machine in machines.items()
        for transition in transitions_of(name, _machine(machine))
        for moment in moments or get_args(Moment)
    ]


def _machine(given: MachineOrModule) -> Machine[Any]:
    machine = getattr(given, "MACHINE", given)
    if not isinstance(machine, Machine):
        raise MisuseError(f"{given!r} is no `Machine`, nor a module that has one as `MACHINE`")
    return machine


def _refuse_unknown_transitions(faults: Sequence[FaultBase], machines: Mapping[str, Machine[Any]]) -> None:
    """Refuse faults at transitions that no machine declares, because they would never strike."""
    for fault in faults:
        point = fault.point if isinstance(fault, Crash) else None
        if not isinstance(point, AtTransition | AtPeerTransition):
            continue
        if point.machine not in machines:
            raise MisuseError(f"{fault}: there is no machine {point.machine!r}, only {', '.join(machines) or 'none'}")
        declared = transitions_of(point.machine, machines[point.machine])
        if Transition(point.machine, point.state, point.event, point.after) not in declared:
            raise MisuseError(f"{fault}: the machine has no such transition; it has {', '.join(map(str, declared))}")


@asynccontextmanager
async def laboratory(
    actors: Mapping[str, Actor],
    machines: Mapping[str, MachineOrModule],
    seed: int = 0,
    faults: Sequence[FaultBase] = (),
    *,
    horizon: float = HORIZON,
) -> AsyncIterator[Laboratory]:
    """Run actors on simulated hosts, on a clock that jumps (`trio.testing.MockClock`).

    Args:
        actors: by party, what it does in each of its lives.
        machines: by the name that faults and charts use, the machines whose transitions are recorded.
        seed: of all random choices.
        faults: what goes wrong; all of it is over after `CALM` seconds.
        horizon: virtual seconds after which the laboratory ends with an error.

    Raises:
        MisuseError: the clock does not jump, a fault names an unknown party or transition, or an actor misuses
            something.
        HorizonError: the horizon is reached.
    """
    refuse_unknown(faults, tuple(actors), "name every party in the actors")
    known = {name: _machine(machine) for name, machine in machines.items()}
    _refuse_unknown_transitions(faults, known)
    async with entered(Laboratory(actors, known, seed, faults, horizon)) as made:
        yield made
