"""A simulated shop, which most tests of a client have."""

from collections.abc import AsyncIterator

import pytest

from parties import Network, simulate
from tests.support.shop import TASK, model


@pytest.fixture
async def network() -> AsyncIterator[Network]:
    async with simulate(TASK, model(), seed=1) as network:
        yield network
