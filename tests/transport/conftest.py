import pytest
import trio
from trio.testing import MockClock

from tests.transport.endpoints import Lab
from transport import MemoryNetwork, TcpTransport

PLACES = {"memory": (MemoryNetwork, "s0"), "tcp": (TcpTransport, "127.0.0.1:0")}


@pytest.fixture(params=PLACES)
async def lab(request, nursery: trio.Nursery) -> Lab:
    """A laboratory on each transport."""
    make, address = PLACES[request.param]
    return Lab(make(), address, nursery)


@pytest.fixture
def autojump_clock() -> MockClock:
    """Virtual time that waits a moment before it jumps: bytes in a socket are on their way even if no task runs."""
    return MockClock(autojump_threshold=0.02)
