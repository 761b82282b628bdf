"""The operator's port on a stage, and a clock that jumps."""

import pytest
from trio.testing import MockClock

from tests.parties.operator.asking import Port


@pytest.fixture
def port() -> Port:
    return Port()


@pytest.fixture
def autojump() -> MockClock:
    return MockClock(autojump_threshold=0)
