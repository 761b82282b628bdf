"""Directed trials reach what they are made for, and count nothing else as reached.

All of them are `python -m tests.system.simulation --reach`; here are some of each kind.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from fsl_async import Task
from parties.simulation.network import SERVERS
from parties.testing.faults import AtPeerTransition, Crash
from parties.testing.machines import declared
from parties.testing.recorder import Transition
from parties.testing.round_faults import MaliciousServer
from parties.testing.trials import Scenario, Trial, drawing
from tests.support.cases import often, sides

from . import __main__ as command
from . import ways
from .bugs import BUGS, planted
from .malice import NOT_DRAWN, draw, run
from .reaching import Goal, Search, as_text, crash_points, search, transitions, trial_for
from .ways_of_counting import COUNTING
from .ways_of_retrievals import RETRIEVING
from .ways_of_workers import SUMMING

CLOSES = Transition("ssa", "Open", "CloseRound", "Closed")
TRIES = range(12)

FIRST_FIELDS = (
    *("name", "blocks", "ring", "selection", "updates", "alignment"),
    *("security", "min_clients", "max_clients", "largest", "retrievals"),
)
DRAWN = "af68dc1b37440b9cf2ddb47ea615d047f59baf4f587cdb7d2f059b54b99c7dc0"
"""A digest of the trials of the seeds 0 to 499."""

GOALS: list[Goal] = [
    ("S1", Transition("ssa", "Concluded", "PeerConclusion", "Differed"), "before sync"),
    ("S0", Transition("ssa", "Concluded", "PeerConclusion", "Differed"), "after send"),
    ("S0", CLOSES, "before write"),
    ("S1", Transition("toss", "Revealing", "PeerTossReveal", "Tossed"), "before send"),
    ("S0", Transition("ssa", "Closing", "GraceOver", "Aborted"), "after send"),
    ("S1", Transition("ssa", "Proved", "PeerProofs", "Aborted"), "before sync"),
    ("S0", Transition("ssa", "Committed", "PeerAbort", "Aborted"), "after write"),
    ("S1", Transition("ssa", "Revealed", "PeerShare", "Combined"), "after send"),
    Transition("ssa.client", "HalfReceipted", "Leave", "Away"),
    Transition("epochs", "Planted", "Brought", "Planted"),
    Transition("partials", "Settling", "Put", "Settling"),
]


@pytest.mark.parametrize("goal", often(5, GOALS[::2] + GOALS[1::2]), ids=as_text)
def test_a_goal_is_reached(goal: Goal) -> None:
    ended = search(goal, TRIES)
    assert ended.failures == ()
    assert goal in ended.reached, f"not reached in {ended.tries} tries: change its way"


def test_there_is_a_way_to_every_transition_of_a_server() -> None:
    assert sorted([*ways.WAYS, *COUNTING]) == sorted([*declared("ssa"), *declared("sampling"), *declared("toss")])
    assert set(ways.SILENT) <= set(ways.WAYS)
    assert {*ways.OTHER_WAYS, *SUMMING} <= set(transitions())
    assert len(set(crash_points())) == 5 * 2 * (len(ways.WAYS) + len(COUNTING) + len(RETRIEVING))


def test_trials_are_the_same_each_time() -> None:
    goal = GOALS[2]
    assert trial_for(goal, 3) == trial_for(goal, 3) != trial_for(goal, 4)


def test_what_did_not_happen_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what brings a transition about its crash never strikes, though it stands in the plan."""
    transition = Transition("ssa", "Closing", "GraceOver", "Aborted")
    goal: Goal = ("S0", transition, "before write")
    monkeypatch.setitem(ways.WAYS, transition, ways.WAYS[CLOSES])
    ended = search(goal, range(2))
    assert (ended.tries, ended.failures) == (2, ())
    assert goal not in ended.reached


def test_a_trial_that_fails_ends_the_search() -> None:
    with planted(BUGS["adds submissions once more after a restart"]):
        ended = search(("S0", CLOSES, "after write"), TRIES)
    assert ended.failures
    assert search(ended.goal, TRIES).failures == ()


@pytest.mark.parametrize(("name", "server"), sides(NOT_DRAWN, SERVERS))
@pytest.mark.parametrize("seed", often(1, range(3)))
def test_malice_that_is_not_drawn_is_tried(seed: int, server: str, name: str) -> None:
    """In two rounds: what a lie has a client submit again would be in both sums, and be shown by their difference."""
    malicious = MaliciousServer(server, name)
    verdict = run(Trial(seed, ways.Plan(clients=3, rounds=2).scenario(), (malicious,)))
    assert (verdict.violations, verdict.fired) == ((), (malicious,))


@pytest.mark.parametrize(("selection", "server"), sides(["adaptive", "fixed"], SERVERS))
def test_wrong_answers_to_retrievals_are_refused_in_whole_worlds(selection: Any, server: str) -> None:
    plan = ways.Plan(clients=3, security="verified", selection=selection, rounds=2)
    malicious = MaliciousServer(server, "answers retrievals wrongly")
    verdicts = [run(Trial(seed, plan.scenario(), (malicious,))) for seed in range(2)]
    assert [verdict.violations for verdict in verdicts] == [(), ()]
    ledgers = [ledger for verdict in verdicts for ledger in verdict.case.ledgers.values()]
    assert sum(ledger.wrong_answers for ledger in ledgers) > 0
    assert not any(found.rows for ledger in ledgers for found in ledger.retrieved if found.block == "items")


def test_seeds_give_the_trials_that_they_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures and planted bugs name seeds: whatever is added is added beside what is drawn."""
    for share in ("COUNTED_SHARE", "BOUNDED_SHARE", "NOISED_SHARE", "SPOILT_SHARE"):
        monkeypatch.setattr(drawing, share, 0.0)
    drawn = b"".join(msgspec.json.encode(_as_it_was(draw(seed))) for seed in range(500))
    assert sha256(drawn).hexdigest() == DRAWN


def _as_it_was(trial: Trial) -> dict[str, Any]:
    """A trial without the fields of it and its task that came later, where they say what had been so all along."""
    plain: dict[str, Any] = msgspec.to_builtins(trial)
    plain["scenario"] = {
        field.name: plain["scenario"][field.name]
        for field in msgspec.structs.fields(Scenario)
        if field.default != plain["scenario"][field.name]  # the first fields have no default
    }
    task = plain["scenario"]["task"]
    task.pop("sample")
    plain["faults"] = [fault for fault in plain["faults"] if "sampling" not in fault.get("point", {}).values()]
    later = [field for field in msgspec.structs.fields(Task) if field.name not in FIRST_FIELDS]
    plain["scenario"]["task"] = {
        name: value for name, value in task.items() if name not in {f.name for f in later if f.default == value}
    }
    return plain


def test_a_server_dies_as_its_peer_takes_a_transition() -> None:
    crash = Crash("S1", AtPeerTransition("ssa", "Verified", "Summed", "Committed"), 0.5)
    verdict = run(Trial(1, ways.Plan().scenario(), (crash,)))
    assert (verdict.violations, verdict.fired) == ((), (crash,))
    assert (verdict.case.world.process("S0").lives, verdict.case.world.process("S1").lives) == (1, 2)
    assert verdict.crash_points == frozenset(), "it did not die at a transition of its own"


@pytest.mark.parametrize(
    ("reached", "failures", "code"), [("all", (), 0), ("some", (), 1), ("all", ("nobody fails: S0 ended",), 1)]
)
def test_the_command_says_whether_all_was_reached(
    reached: str,
    failures: tuple[str, ...],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    goals: list[Goal] = [*crash_points(), *transitions()]

    def some(*_: object) -> Iterator[Search]:
        found = frozenset(goals if reached == "all" else goals[1:])
        yield Search(goals[0], 3, Trial(1, Scenario(ways.Plan().scenario().task, 2, 1, 5.0), ()), failures, found, 0.1)

    shown: list[Trial] = []
    monkeypatch.setattr(command, "reach", some)
    monkeypatch.setattr(command, "show", lambda trial, shrinking: shown.append(trial))
    monkeypatch.setattr(command, "save", lambda trial: None)
    assert command.reach_all(range(3), 1, as_json=False) == code
    output = capsys.readouterr().out
    assert (f"not reached   {as_text(goals[0])}" in output) == (reached == "some")
    assert ("violation     nobody fails: S0 ended" in output) == bool(failures) == bool(shown)
