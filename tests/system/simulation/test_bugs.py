"""The laboratory finds what is planted on purpose, and nothing where nothing is planted.

All planted bugs are hunted by `python -m tests.system.simulation.hunt`; here are those that a few seeds find, and for
the others a plan of faults each, made for it.
"""

from collections.abc import Iterable
from functools import partial

import pytest

from parties.testing.faults import AtCommit, AtTransition, AtWrite, Crash, SlowDisk
from parties.testing.round_faults import AbortRound, Late, MaliciousServer, Straggle
from parties.testing.trials import Trial
from tests.support.cases import in_turn

from . import ways
from .bugs import BUGS, Bug, planted
from .malice import draw, judged

FOUND_AT = {
    "says nothing again when the servers have met": 0,
    "does not repeat its half of a toss": 0,
    "nobody is woken when a submission is in": 2,
    "nobody is woken when a round is settled": 0,
    "leaves in the sum who is not counted": 1,
    "believes one server that a round has closed": 3,
    "counts whom only one server has": 1,
    "reveals with its commitment": 2,
    "counts submissions whose digests differ": 4,
    "a commit returns before it is synced": 5,
    "the peer's half of a toss is not recorded": 5,
    "counts whose proof fails": 8,
    "counts whose bound is not proved": 166,
    "takes a lost receipt for a refusal": 19,
    "a share's nonce is not recorded": 8,
    "the peer's commitment is not recorded": 8,
    "adds the first of a batch alone": 500_012,
}
"""By bug, the seed that finds it. A change of the code or of what is drawn may move it; then a few more are tried."""

MORE = range(8)


Plan = partial(ways.Plan, clients=3, seconds=ways.SHORT)
"""Faults that bring a bug to light with some of the first few seeds."""


def _trials(plan: ways.Plan, seeds: Iterable[int]) -> list[Trial]:
    """The same with several seeds: which client's carrier a server is, and who is first, they decide."""
    return [Trial(seed, plan.scenario(), plan.faults) for seed in seeds]


SUBMITTED = ("ssa", "Open", "Submitted", "Open")
CLOSED = ("ssa", "Open", "CloseRound", "Closed")
SUMMED = ("ssa", "Verified", "Summed", "Committed")
UNRECORDED = Plan(
    (SlowDisk("S0", begin=0.0, seconds=100.0, each=0.3), Crash("S0", AtTransition(*SUBMITTED, "before sync"), 1.0)),
    seconds=20.0,
)
"""What is said before it is written has the time to arrive; then it turns out that it never was written."""
LISTED = ("sampling", "Gathering", "Frozen", "Listed")
CONCLUDED = ("ssa", "Combined", "Applied", "Concluded")
DIRECTED = {
    "calls an own rule again after a restart": Plan(
        (Crash("S0", AtTransition(*CONCLUDED, "after write"), 1.0),), rule="own, unsteady"
    ),
    "applies although the outcomes differ": Plan((), rule="own, unsteady"),
    "its last words are what came of it": Plan(
        (Crash("S1", AtTransition("ssa", "Concluded", "PeerConclusion", "Differed", "before sync"), 1.0),),
        rule="own, unsteady",
        rounds=2,
    ),
    "does not keep the optimizer's state": Plan(
        (Crash("S0", AtTransition(*CLOSED, "after write", occurrence=2), 1.0),), rule="FedAvgM", rounds=2
    ),
    "divides by all clients that may come": Plan((), rule="mean"),
    "one decay stands for the other": Plan((), rule="FedAdam", rounds=2),
    "does not repeat who has asked": Plan((Crash("S0", AtTransition(*LISTED, "before send"), 1.0),), sample=1.0),
    "who has asked is not recorded": Plan((Crash("S0", AtTransition(*SUBMITTED, "after write"), 1.0),), sample=1.0),
    "each server ranks clients by itself": Plan((), clients=4, rounds=3, sample=0.5),
    "tells everybody that they are drawn": Plan((), clients=5, sample=2),
    "a receipt before the list is written": UNRECORDED,
    "of submissions that are entered together only the first is recorded": Plan(
        (SlowDisk("S0", begin=0.0, seconds=100.0, each=3.0), Crash("S0", AtTransition(*SUMMED, "after write"), 1.0)),
        clients=5,
        seconds=30.0,
    ),
    "acts before it records": UNRECORDED,
    "a receipt for who is not on the list": UNRECORDED,
    "a list that is closed but not recorded": Plan(
        (
            Straggle("anna", 1, "S0", seconds=100.0),
            Late("dora", 1, seconds=100.0),
            Crash("S0", AtTransition(*SUMMED, "after write"), 1.0),
        ),
        clients=4,
    ),
    "waits for stragglers for ever": Plan(  # S1 opens late, and so hears S0's list while it is open
        (Straggle("anna", 1, "S1", seconds=1000.0), SlowDisk("S1", begin=0.0, seconds=2.5, each=0.3)), seconds=8.0
    ),
    "drops what is on its way when it is sent": Plan(
        (Crash("S1", AtTransition("ssa", "Closed", "PeerRoster", "Rostered", "before sync"), 1.0),)
    ),
    "does not repeat its last words": Plan(
        (
            AbortRound("S0", AtTransition(*SUBMITTED, "after write")),
            Crash("S0", AtTransition("ssa", "Open", "GaveUp", "Aborted", "after write"), 1.0),
        ),
        rounds=2,
    ),
    "gives up after it has committed": Plan((AbortRound("S0", AtTransition(*SUMMED, "after write")),)),
    "the model is settled before its round's number": Plan((Crash("S0", AtWrite("model/", 2, "after write"), 1.0),)),
    "a round's number is settled before its model": Plan((Crash("S0", AtWrite("standing", 2, "after write"), 1.0),)),
    "adds submissions once more after a restart": Plan(
        (Crash("S0", AtTransition(*SUBMITTED, "after write", occurrence=3), 1.0),)
    ),
    "erases a submission at its first receipt": Plan((Crash("anna", AtWrite("submission", 2, "after write"), 1.0),)),
    "a torn entry is taken for a whole one": Plan(
        tuple(Crash("S0", AtCommit(number, "before sync"), 0.1) for number in (2, 4, 6, 8, 10))
    ),
    "keeps two parts of one request": Plan(
        (
            MaliciousServer("S1", "forwards two parts of one client"),
            Crash("S0", AtWrite("/parts/", 2, "after write"), 1.0),
        ),
        selection="fixed",
    ),
    "submits again what was counted": Plan(
        (Crash("anna", AtWrite("submission", 2, "before write"), 30.0),), rounds=3, seconds=20.0
    ),
    "nobody is woken when a round opens": Plan((), rounds=2),
    "loses trees that were counted": Plan((), rounds=2, selection="fixed"),
    "keeps trees that were not counted": Plan(
        (AbortRound("S0", AtTransition(*SUBMITTED, "after write", occurrence=2)),), rounds=2, selection="fixed"
    ),
    "takes a share that was not committed to": Plan((MaliciousServer("S1", "changes its share after committing"),)),
    "believes one server's account": Plan((MaliciousServer("S0", "tells another outcome"),)),
}

SEEDS = range(10)


def _is_found(bug: Bug, trials: Iterable[Trial]) -> list[Trial]:
    """The first of some trials that shows a bug; none, if it is not found."""
    with planted(bug):
        return next(([trial] for trial in trials if judged(trial)[1]), [])


@in_turn("bug", BUGS.values())
def test_every_bug_can_be_planted(bug: Bug) -> None:
    with planted(bug):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_AT)
def test_a_planted_bug_is_found_among_the_first_seeds(name: str) -> None:
    bug, seed = BUGS[name], FOUND_AT[name]
    found = _is_found(bug, [draw(other, surely=not bug.alone) for other in (seed, *MORE)])
    assert found, f"{name} is not found by seed {seed} any more: hunt it, and put down the seed that finds it"
    assert judged(found[0])[1] == (), f"seed {found[0].seed} fails without the bug as well"


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTED)
def test_a_planted_bug_is_found_by_what_was_made_for_it(name: str) -> None:
    found = _is_found(BUGS[name], _trials(DIRECTED[name], SEEDS))
    assert found, f"{name} is not found by the plan that was made for it"
    assert judged(found[0])[1] == (), f"the same plan fails with seed {found[0].seed} without the bug as well"
