"""The tables of all protocol machines: every event outside of them changes nothing, in states that walks have met."""

import re
from types import ModuleType
from typing import Any

import msgspec
import pytest

from fsl_async.protocols import assembly, ending, entry, psr, sampling, ssa, toss
from fsl_async.protocols.machine import Event, Machine, State, UnexpectedEvent, accepted_later
from parties.testing.machines import machines
from tests.support.cases import in_turn
from tests.support.machine_walks import walked

MACHINES = machines()
each_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


def _late(*states: type[State]) -> set[tuple[type[State], type[Event]]]:
    """What a peer says again in these states, and the grace that is over."""
    again = (ssa.PeerRoster, ssa.PeerProofs, ssa.PeerCommitment, ssa.PeerShare, ssa.PeerConclusion)
    order = (ssa.Rostered, ssa.Verified, ssa.Revealed, ssa.Combined, ssa.Done)
    after = list(ssa.ACCEPTS)
    return {
        (state, event)
        for event, first in zip(again, order, strict=True)
        for state in states
        if after.index(state) >= after.index(first)
    }


AFTER_CLOSING = (
    *(ssa.Rostered, ssa.Proved, ssa.Verified, ssa.Tallied, ssa.Chosen, ssa.Committed),
    *(ssa.Revealed, ssa.Combined, ssa.Concluded, ssa.Done, ssa.Differed, ssa.Aborted),
)
HARMLESS: dict[str, set[tuple[type[State], type[Event]]]] = {
    "toss": {
        (toss.Revealing, toss.PeerTossCommitment),
        (toss.Tossed, toss.PeerTossCommitment),
        (toss.Tossed, toss.PeerTossReveal),
    },
    "sampling": {(state, sampling.PeerAsked) for state in (sampling.Answering, sampling.Drawn, sampling.TooFew)},
    "assembly": {
        *((state, assembly.Direct) for state in (assembly.DirectOnly, assembly.Assembled, assembly.Mismatched)),
        *((state, assembly.Public) for state in (assembly.PublicOnly, assembly.Assembled, assembly.Mismatched)),
    },
    "ssa": {
        (ssa.Closing, ssa.PeerRoster),
        *_late(*AFTER_CLOSING),
        *((state, ssa.GraceOver) for state in AFTER_CLOSING),
        *(
            (ssa.Aborted, event)
            for event in (ssa.PeerAbort, ssa.Evaluated, ssa.RowsCounted, ssa.PeerCounts, ssa.Summed)
        ),
        *((state, ssa.PeerCounts) for state in (ssa.Chosen, ssa.Committed, ssa.Revealed)),
    },
    "psr": {
        *((psr.Aborted, event) for event in (psr.PeerClosed, psr.PeerConclusion, psr.PeerAbort)),
        *((state, psr.PeerClosed) for state in (psr.Concluded, psr.Done)),
        (psr.Done, psr.PeerConclusion),
    },
}
"""By machine, the pairs outside its table that change nothing, as a resend."""
OUTSIDE = [
    (name, state, event)
    for name, machine in MACHINES.items()
    for state in machine.ACCEPTS
    for event in frozenset().union(*machine.ACCEPTS.values())
    if (state, event) not in machine.TRANSITIONS and (state, event) not in HARMLESS.get(name, ())
]


def frozen(value: Any) -> bytes:
    """All that a state or event holds, dictionaries included."""
    return msgspec.msgpack.encode(value, enc_hook=dict)  # `Entries` are a mapping


def members(module: Any, base: type) -> set[type]:
    """The states or events that a machine's module or package defines, or shares with those of other rounds."""
    places = (module.__name__, ending.__name__, entry.__name__)
    return {
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__.startswith(places)
    }


@each_machine
def test_the_table_speaks_of_every_state_and_event(machine: ModuleType) -> None:
    met = walked(machine)
    assert set(machine.ACCEPTS) == members(machine, State) == set(met.states)
    assert frozenset().union(*machine.ACCEPTS.values()) == members(machine, Event) == set(met.events)


@pytest.mark.parametrize("name", MACHINES)
def test_what_changes_nothing_outside_the_table_is_said(name: str) -> None:
    assert walked(MACHINES[name]).harmless == HARMLESS.get(name, set())


@in_turn("name, state, event", OUTSIDE)
def test_every_other_event_is_unexpected(name: str, state: type[State], event: type[Event]) -> None:
    met = walked(MACHINES[name])
    before, step = met.states[state]
    held = frozen(before)
    with pytest.raises(UnexpectedEvent) as unexpected:
        step(before, met.events[event])
    accepted = ", ".join(sorted(kind.__name__ for kind in MACHINES[name].ACCEPTS[state])) or "nothing more"
    assert str(unexpected.value) == f"{event.__name__} in state {state.__name__}, which accepts {accepted}"
    assert frozen(before) == held


@each_machine
def test_steps_change_neither_state_nor_event(machine: ModuleType) -> None:
    steps = walked(machine).steps
    assert set(steps) == set(machine.TRANSITIONS)
    for before, cause, step in steps.values():
        held = frozen(before), frozen(cause)
        step(before, cause)
        assert (frozen(before), frozen(cause)) == held


@each_machine
def test_states_are_immutable(machine: ModuleType) -> None:
    for state, _ in walked(machine).states.values():
        for field in msgspec.structs.fields(state):
            with pytest.raises(AttributeError, match="immutable"):
                setattr(state, field.name, None)


@each_machine
def test_states_and_events_survive_a_journal(machine: ModuleType) -> None:
    met = walked(machine)
    for item in (*(state for state, _ in met.states.values()), *met.events.values()):
        assert msgspec.msgpack.decode(frozen(item), type=type(item)) == item


@each_machine
def test_an_event_waits_only_for_a_later_state(machine: ModuleType) -> None:
    order, met = list(machine.ACCEPTS), walked(machine)
    for place, state in enumerate(order):
        for event in met.events.values():
            expected = any(type(event) in machine.ACCEPTS[later] for later in order[place + 1 :])
            assert accepted_later(machine.ACCEPTS, met.states[state][0], event) == expected


# ---- how a table comes from its rules


class On(State, frozen=True):
    pass


class Off(State, frozen=True):
    pass


class Press(Event, frozen=True):
    pass


class Hold(Event, frozen=True):
    seconds: int


def switch() -> Machine[On | Off]:
    return Machine(On | Off, Press | Hold, initial=(Off,))


def press(state: On | Off, event: Press) -> On | Off:
    return Off() if isinstance(state, On) else On()


def hold(state: On, event: Hold) -> On:
    return state


def lately(state: Off, event: Hold) -> On:
    return On()


def test_a_rule_s_signature_is_its_entry_in_the_table() -> None:
    machine = switch()
    machine.transition(press)
    machine.transition(hold)

    @machine.repetition
    def held_long(state: Off, event: Hold) -> bool:
        return event.seconds > 1

    machine.complete()
    assert machine.transitions == {(On, Press): {On, Off}, (Off, Press): {On, Off}, (On, Hold): {On}}
    assert machine.accepts == {On: {Press, Hold}, Off: {Press}}
    assert machine.step(machine.step(On(), Press()), Hold(2)) == Off()
    with pytest.raises(UnexpectedEvent, match="Hold in state Off, which accepts Press"):
        machine.step(Off(), Hold(1))


def test_an_observer_hears_transitions_and_nothing_else() -> None:
    machine, heard = switch(), []
    machine.transition(press)
    machine.transition(hold)

    @machine.repetition
    def is_off(state: Off, event: Hold) -> bool:
        return event.seconds > 1

    machine.complete()
    with machine.observed(lambda *step: heard.append(step)):
        machine.step(machine.step(On(), Press()), Hold(2))
        with pytest.raises(UnexpectedEvent):
            machine.step(Off(), Hold(1))
    machine.step(On(), Press())
    assert heard == [(On(), Press(), Off())]


# ---- a table that lacks a case


def test_two_rules_for_one_event_in_one_state_are_refused() -> None:
    machine = switch()

    def is_pressed(state: On | Off, event: Press) -> bool:
        return True

    for add, rule in ((machine.transition, press), (machine.repetition, is_pressed)):
        add(rule)
        with pytest.raises(TypeError, match=f"two rules for Press in state On; the other is {rule.__name__}"):
            add(rule)


def unannotated(state: On, event: Press):  # type: ignore[no-untyped-def]
    return Off()


def alone(state: On) -> Off:
    return Off()


def untyped(state: On, event) -> Off:  # type: ignore[no-untyped-def]
    return Off()


def perhaps(state: On, event: Press) -> Off | None:
    return None


def nowhere(state: On, event: Press) -> Press:
    return event


def strange(state: Press, event: Press) -> On:
    return On()


def backwards(state: On, event: On) -> On:
    return event


RULES = [
    (unannotated, "annotate what it returns"),
    (untyped, "annotate the parameter 'event'"),
    (alone, "takes a state, an event, and after them its context"),
    (perhaps, "NoneType is no state of this machine, whose states are On | Off"),
    (nowhere, "Press is no state of this machine, whose states are On | Off"),
    (strange, "Press is no state of this machine"),
    (backwards, "On is no event of this machine, whose events are Press | Hold"),
]


@pytest.mark.parametrize(("rule", "reason"), RULES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_rule_that_is_no_entry_of_the_table_is_refused_at_its_decorator(rule: Any, reason: str) -> None:
    with pytest.raises(TypeError, match=re.escape(reason)) as refused:
        switch().transition(rule)
    assert str(refused.value).startswith(f"{__name__}.{rule.__name__}: ")


def test_a_repetition_says_yes_or_no() -> None:
    with pytest.raises(TypeError, match="declare `-> bool`"):
        switch().repetition(press)


def test_all_cases_that_a_table_lacks_are_named() -> None:
    machine: Machine[On | Off] = Machine(On | Off, Press | Hold, initial=(On,), final=(On,))
    machine.transition(hold)
    lacking = [
        "Off accepts no event: write a rule, or name it in final=(…,)",
        "On is final and has rules",
        "no rule leads to Off",
        "no state accepts Press",
    ]
    with pytest.raises(TypeError, match=re.escape(f"the machine in {__name__} lacks cases: {'; '.join(lacking)}")):
        machine.complete()


def test_a_machine_takes_no_step_before_its_table_is_complete() -> None:
    machine = switch()
    machine.transition(press)
    with pytest.raises(TypeError, match=rf"end {__name__} with a call of the machine's `complete\(\)`"):
        machine.step(On(), Press())


def test_states_that_only_lead_to_each_other_are_never_reached() -> None:
    machine = switch()

    def stay(state: On, event: Press | Hold) -> On:
        return state

    machine.transition(stay)
    with pytest.raises(TypeError, match="no rule leads to On"):
        machine.complete()


def test_a_rule_that_comes_after_the_last_line_is_refused_at_the_first_step() -> None:
    machine = switch()
    machine.transition(press)
    machine.transition(hold)
    machine.complete()
    machine.transition(lately)
    with pytest.raises(TypeError, match=r"call of the machine's `complete\(\)`"):
        machine.step(On(), Press())


def test_unions_are_of_states_and_of_events() -> None:
    with pytest.raises(TypeError, match="Press is not a state; derive it from `State`"):
        Machine(On | Press, Press, initial=(On,))
    with pytest.raises(TypeError, match="On is not an event; derive it from `Event`"):
        Machine(On | Off, Press | On, initial=(On,))
    with pytest.raises(TypeError, match="Off is no state of this machine, whose states are On"):
        Machine(On, Press, initial=(On,), final=(Off,))
    with pytest.raises(TypeError, match="a machine begins somewhere"):
        Machine(On, Press, initial=())
