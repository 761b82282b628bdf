"""The laboratory finds what is planted on purpose, and nothing where nothing is planted.

All planted bugs are hunted by `python -m tests.simulation.hunt`; here are those that a few seeds find.
"""

from __future__ import annotations

import pytest

from .bugs import BUGS, Bug, planted
from .hunt import failures, hunt
from .malice import draw

FOUND_AT = {
    "says nothing again when the servers have met": 0,
    "does not repeat its half of a toss": 0,
    "nobody is woken when a submission is in": 0,
    "nobody is woken when a round is settled": 0,
    "leaves in the sum who is not counted": 1,
    "counts whom only one server has": 1,
    "reveals with its commitment": 2,
    "counts submissions whose digests differ": 4,
    "a commit returns before it is synced": 5,
    "the peer's half of a toss is not recorded": 5,
    "counts whose proof fails": 6,
    "takes a lost receipt for a refusal": 6,
    "a share's nonce is not recorded": 8,
    "the peer's commitment is not recorded": 8,
    "a receipt for who is not on the list": 95,
}
"""By bug, the seed that finds it. A change of the code or of what is drawn may move it; then a few more are tried."""

MORE = range(8)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_every_bug_can_be_planted(bug: Bug) -> None:
    with planted(bug):
        pass


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in FOUND_AT], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    seed = FOUND_AT[bug.name]
    ended = hunt(bug, (seed, *MORE))
    assert ended.found, f"{bug.name} is not found by seed {seed} any more: hunt it, and put down the seed that finds it"
    assert failures(draw(ended.tried[-1], surely=not bug.alone)) == (), (
        f"seed {ended.tried[-1]} fails without the bug as well"
    )
