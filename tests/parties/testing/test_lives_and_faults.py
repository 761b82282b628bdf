"""Processes, the recorder and the injector: the dead do nothing, machines stay as they were, faults strike once."""

from contextvars import copy_context
from random import Random

import pytest
import trio

from fsl_async.protocols.machine import Event, Machine, State
from parties.events import RoundSettled
from parties.storage.store import Record
from parties.testing import (
    CALM,
    AtCommit,
    AtSend,
    AtTime,
    AtTransition,
    BrokenWrite,
    CloseNow,
    Crash,
    Fault,
    FullDisk,
    SkewedClock,
    World,
)
from parties.testing.injector import Injector
from parties.testing.machines import MACHINES, declared
from parties.testing.processes import KilledError, Life, Process, current_life
from parties.testing.recorder import Step, Transition, listening
from parties.testing.story import Began, Failed, Killed, Left
from parties.watch import Note
from tests.parties.testing import small_world

SEED = 8
INFINITE = float("inf")

# ---- lives


async def test_tasks_belong_to_the_life_of_who_started_them() -> None:
    life = Process("S0", Random(1)).begin()
    seen: list[Life | None] = []

    async def look() -> None:
        seen.append(current_life())

    async def live() -> None:
        life.enter()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(look)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(live)
    assert seen == [life]
    assert current_life() is None


async def test_a_killed_life_ends_once_and_cancels_its_tasks() -> None:
    process = Process("S0", Random(1))
    life = process.begin()
    ended: list[bool] = []
    life.ending.append(lambda: ended.append(life.alive))
    life.require_alive()
    with life.scope:
        process.kill(3.0)
        process.kill(4.0)
        await trio.sleep_forever()
    assert ended == [False]
    assert not process.running
    with pytest.raises(KilledError):
        life.require_alive()
    assert process.begin().number == 2
    assert process.running


@pytest.fixture(scope="module")
def crashed() -> World:
    """A round in which both servers and a client die."""
    faults = [
        Crash("S0", AtTime(1.0), down=2.0),
        Crash("S1", AtTime(1.7), down=1.0),
        Crash("client 1", AtSend(4, "after send"), down=1.0),
    ]
    return small_world.one_round(SEED, faults, clients=3)


def test_nothing_is_told_of_a_dead_process(crashed: World) -> None:
    running: set[str] = set()
    for at, party, told in crashed.story:
        match told:
            case Began():
                assert party not in running
                running.add(party)
            case Killed() | Failed() | Left():
                running.remove(party)
            case Note():
                assert party in running, f"{told} after {at} s, by a process that does not run (seed {SEED})"
    kills = [party for _, party, told in crashed.story if isinstance(told, Killed)]
    assert sorted(kills) == ["S0", "S1", "client 1"]


def test_its_lives_are_as_far_apart_as_the_plan_says(crashed: World) -> None:
    times = {(party, type(told)): at for at, party, told in crashed.story if party == "S0"}
    assert times["S0", Killed] == pytest.approx(1.0)
    assert times["S0", Began] == pytest.approx(3.0)


def test_a_client_that_vanishes_never_comes_again() -> None:
    faults = [Crash("client 0", AtSend(3, "before send"), down=INFINITE)]
    world = small_world.one_round(SEED, faults, clients=3)
    assert world.process("client 0").lives == 1
    assert not world.process("client 0").running
    assert list(world.settled[0][1].clients) == ["client 1", "client 2"]


def test_what_stops_with_the_world_is_no_part_of_its_story(crashed: World) -> None:
    assert isinstance(crashed.story[-1].event, RoundSettled | Note | Left)


# ---- the recorder


class Off(State, frozen=True):
    """Not lit."""


class On(State, frozen=True):
    """Lit."""


class Press(Event, frozen=True):
    """The switch is pressed."""


def test_steps_are_heard_by_their_machine_s_name_while_somebody_listens() -> None:
    machine: Machine[On | Off] = Machine(On | Off, Press, initial=(Off,))
    heard: list[Step] = []

    @machine.transition
    def toggle(state: On | Off, event: Press) -> On | Off:
        return Off() if isinstance(state, On) else On()

    machine.complete()

    def press(state: On | Off) -> On | Off:
        Process("ann", Random(1)).begin().enter()
        return machine.step(state, Press())

    with listening(heard.append, {"lamp": machine}):
        assert copy_context().run(press, Off()) == On()
        with pytest.raises(LookupError), listening(heard.append, {"lamp": machine}):
            raise LookupError
    copy_context().run(press, On())
    assert [str(step.transition) for step in heard] == ["lamp: Off ──Press──> On"]
    assert heard[0].life.process.name == "ann"


def test_all_that_is_heard_in_a_world_is_declared(crashed: World) -> None:
    heard = {step.transition for step in crashed.steps}
    assert heard <= {transition for name in MACHINES for transition in declared(name)}
    assert {transition.machine for transition in heard} >= {"ssa", "toss", "entry", "psr.client", "ssa.client"}


def test_steps_outside_all_processes_are_not_heard(crashed: World) -> None:
    step = next(step for step in crashed.steps if step.transition.machine == "ssa.client")
    heard: list[object] = []
    with listening(heard.append, MACHINES):
        assert MACHINES["ssa.client"].step(step.state, step.event) == step.after
    assert heard == []


# ---- where faults strike


def test_a_crash_waits_for_its_occurrence_of_a_transition() -> None:
    label = ("toss", "Committing", "PeerTossCommitment", "Revealing")
    assert Transition(*label) in declared("toss")
    first, second = (Crash("S0", AtTransition(*label, "after write", occurrence=n), down=0.5) for n in (1, 2))
    assert small_world.one_round(SEED, [first]).injector.fired == [first]
    assert small_world.one_round(SEED, [second]).injector.fired == [], "one round has one toss"


def test_faults_taken_out_of_a_plan_leave_the_others_as_they_were() -> None:
    crash = Crash("S1", AtCommit(6, "after write"), down=1.0)
    never: list[Fault] = [
        FullDisk("client 1", begin=100.0, seconds=9.0),
        Crash("client 0", AtSend(10_000, "after send"), down=1.0),
        BrokenWrite("S0", number=10_000),
    ]
    alone, among_others = small_world.one_round(SEED, [crash]), small_world.one_round(SEED, [*never, crash])
    assert alone.transcript == among_others.transcript


def test_an_operator_closes_a_round() -> None:
    """The clients that are away are not waited for."""
    fault = CloseNow("S1", AtTime(5.0))
    world = small_world.one_round(SEED, [Crash("client 0", AtSend(1, "before send"), down=30.0), fault], clients=3)
    assert fault in world.injector.fired
    assert world.transcript[-1][0] < 20
    assert list(world.settled[0][1].clients) == list(world.settled[1][1].clients) == ["client 1", "client 2"]


# ---- disks and clocks


async def commit(injector: Injector, process: Process) -> None:
    process.commits += 1
    await injector.before_write(process.begin(), (Record("j", b""),))


async def test_in_the_end_nothing_goes_wrong_any_more(autojump_clock: trio.abc.Clock) -> None:
    faults = [FullDisk("S0", begin=0.0, seconds=10 * CALM), SkewedClock("S0", begin=5.0, seconds=-60.0)]
    injector = Injector(1, faults)
    injector.begin()
    assert injector.clock_error("S0") == 0.0
    await trio.sleep(injector.until(6.0))
    assert injector.clock_error("S0") == -60.0
    assert injector.clock_error("S1") == 0.0
    await trio.sleep(injector.until(CALM))
    assert injector.calm
    assert injector.clock_error("S0") == 0.0
    await commit(injector, Process("S0", Random(1)))
