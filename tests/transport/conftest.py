import pytest
import trio
from trio.testing import MockClock

from transport import MemoryNetwork, SocketTransport, TcpTransport, UnixTransport
from transport.testing.case import Lab
from transport.web import WebTransport

PLACES = {
    "memory": (MemoryNetwork, "s0"),
    "tcp": (TcpTransport, "127.0.0.1:0"),
    "unix": (UnixTransport, "unix:{folder}/s0"),
    "by address": (SocketTransport, "unix:{folder}/s0"),
    "WebSocket": (WebTransport, "ws://127.0.0.1:0/fsl"),
}


@pytest.fixture(params=["memory", "tcp", "unix"])
async def lab(request, nursery: trio.Nursery, tmp_path) -> Lab:
    """A laboratory on each transport."""
    make, address = PLACES[request.param]
    return Lab(make(), address.format(folder=tmp_path), nursery)


@pytest.fixture
def autojump_clock() -> MockClock:
    """Virtual time that waits a moment before it jumps: bytes in a socket are on their way even if no task runs."""
    return MockClock(autojump_threshold=0.02)
