"""A crowd's figures: a round of many clients is exact, and a client more costs the same however many are there."""

from __future__ import annotations

import pytest

from tests.bench.crowd import core_bytes, crowd_round, submitted_seconds


def test_a_crowd_is_counted_exactly_and_told_so_in_few_bytes():
    figures = crowd_round(40, together=8)
    assert figures.exact
    assert figures.counted == 40
    assert 300 < figures.statement_bytes / 40 < 1_000


@pytest.mark.slow
def test_a_submission_costs_a_long_list_no_more_than_a_short_one():
    """A copy of the list for each took 30 times as long at 20,000 as at 100."""
    assert submitted_seconds(20_000, 500) < 5 * submitted_seconds(100, 500)


@pytest.mark.slow
def test_the_core_has_little_memory_for_each_client():
    assert core_bytes(50) < 2_000
