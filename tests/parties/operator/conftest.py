"""The operator's port on a stage, and a clock that jumps."""

from collections.abc import Iterator

import pytest
from trio.testing import MockClock

from tests.parties.operator.asking import Port
from tests.parties.operator.paper import Paper


@pytest.fixture
def paper() -> Iterator[Paper]:
    """What is logged while the test runs."""
    paper = Paper()
    with paper.log.installed():
        yield paper


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def autojump() -> MockClock:
    return MockClock(autojump_threshold=0)
