"""Worlds whose clients fetch sparse blocks whole now and then, and submit rows after it, whoever is killed."""

import pytest

from fsl_async.wire.messages import Download
from parties.testing.trials.scenario import LATE_FROM, MILLION
from parties.watch import Note

from .malice import draw, run

KINDS = (LATE_FROM, MILLION + LATE_FROM, 2 * MILLION + LATE_FROM)
"""The first seeds of tasks whose sums are added, that have other rules, and that run one protocol alone."""


def whole_downloads(seed: int) -> int:
    """How many of them the trial of a seed has, which keeps all the rules."""
    verdict = run(draw(seed))
    assert verdict.violations == ()
    said = (entry.event.message for entry in verdict.case.world.story if isinstance(entry.event, Note))
    return sum(isinstance(message, Download) and message.whole for message in said)


def test_members_fetch_whole_blocks_from_their_seeds_on() -> None:
    assert sum(map(whole_downloads, range(LATE_FROM, LATE_FROM + 3))) > 0
    assert whole_downloads(0) == 0


@pytest.mark.slow
@pytest.mark.parametrize("first", KINDS)
def test_whole_blocks_break_no_rule(first: int) -> None:
    assert sum(map(whole_downloads, range(first + 3, first + 9))) > 0
