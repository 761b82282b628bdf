import pytest
import trio
from endpoints import Lab

from transport import Network, TcpTransport

PLACES = {"memory": (Network, "s0"), "tcp": (TcpTransport, "127.0.0.1:0")}


@pytest.fixture(params=PLACES)
async def lab(request, nursery: trio.Nursery) -> Lab:
    """A laboratory on each transport."""
    make, address = PLACES[request.param]
    return Lab(make(), address, nursery)


@pytest.fixture
async def memory_lab(nursery: trio.Nursery) -> Lab:
    return Lab(Network(), "s0", nursery)
