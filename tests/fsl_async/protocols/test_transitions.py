"""The declared transitions of the protocol machines are the real ones: all that are taken, and no others.

Random walks take every event that a machine knows, welcome or not, in any order, and watch what must hold of it; whole
rounds between parties take the events that really come. What is refused or repeated changes nothing; everything else
must be declared.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fsl_async import FslError, Ring, Sparse, Task
from fsl_async.protocols import epochs, partials, psr, sampling, ssa
from fsl_async.protocols.machine import Event, State
from fsl_async.protocols.ssa import client as ssa_client
from parties import simulate
from parties.testing.machines import machines
from tests.support.cases import MANY
from tests.support.machine_walks import WALKS, check, declared, walked

MACHINES = list(machines().values())
NAMES = list(machines())


@pytest.mark.parametrize("walks", [100, pytest.param(200 * MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_random_walks_take_all_declared_transitions_and_no_others(machine: ModuleType, walks: int) -> None:
    assert {type(walk.start) for walk in WALKS[machine]()} <= set(machine.MACHINE.initial)
    assert declared(machine) - walked(machine, walks).taken == set(), "declared, but never taken"


@pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
def test_every_state_can_be_reached(machine: ModuleType) -> None:
    reached = set(machine.MACHINE.initial)
    for _ in machine.ACCEPTS:
        reached |= {after for before, _, after in declared(machine) if before in reached}
    assert reached == set(machine.ACCEPTS)


@pytest.mark.parametrize("selection", ["adaptive", "fixed"])
async def test_parties_take_declared_transitions_only(selection: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds with a union, a session where selection is fixed, and one round that too few clients take part in."""
    taken: list[tuple[ModuleType, State, Event, State]] = []
    for machine in MACHINES:
        monkeypatch.setattr(machine, "step", recording(machine, taken))
    task = Task(
        name="t",
        blocks=(Sparse("a", rows=40, select=4),),
        ring=Ring(64),
        selection=selection,
        alignment="union",
        min_clients=2,
        max_clients=4,
    )
    async with (
        simulate(task, {"a": np.zeros((40, 1), dtype=np.int64)}, seed=1) as network,
        network.client("alice") as alice,
        network.client("bob") as bob,
    ):
        for number in range(3):
            if number == 0 or selection == "adaptive":
                for member in (alice, bob):
                    await member.unite({"a": [1, 2, 3]})
                await network.finish_union()
            for member in (alice, bob)[: 1 if number == 1 else 2]:
                await member.retrieve({"a": [1, 3]})
                await member.submit({"a": ([1, 3], np.ones((2, 1), dtype=np.int64))})
            if number == 1:
                with pytest.raises(FslError, match="at least 2 are needed"):
                    await network.finish_round()
            else:
                await network.finish_round()
            assert (await alice.outcome()).counted == (number != 1)
    steps = {(machine, check(machine, before, event, after)) for machine, before, event, after in taken}
    for machine in MACHINES:
        exercised = {triple for owner, triple in steps if owner is machine}
        assert exercised or machine in (partials, psr, sampling) or (machine is epochs and selection == "adaptive"), (
            machine
        )
    assert (ssa, (ssa.Concluded, ssa.PeerConclusion, ssa.Done)) in steps
    assert (ssa_client, (ssa_client.Submitted, ssa_client.Finish, ssa_client.Over)) in steps


def recording(machine: ModuleType, taken: list[tuple[ModuleType, State, Event, State]]) -> Callable[..., State]:
    step = machine.step

    def recorded(state: State, event: Event, *rest: Any) -> State:
        after: State = step(state, event, *rest)
        taken.append((machine, state, event, after))
        return after

    return recorded
