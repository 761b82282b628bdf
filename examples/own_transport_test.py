"""The transport of own_transport.py does what every transport must, through a proxy that this test runs."""

from functools import partial

import pytest
import trio
from own_transport import ThroughProxy

from transport.testing import CASES


async def relay(source, sink) -> None:
    """Move bytes one way until an end goes away; then both do."""
    try:
        async for data in source:
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    await trio.aclose_forcefully(sink)
    await trio.aclose_forcefully(source)


async def proxy(client: trio.SocketStream) -> None:
    """Connect a client with the address that it names."""
    request = await client.receive_some()
    host, port = request.split(b" ")[1].decode().rsplit(":", 1)
    try:
        server = await trio.open_tcp_stream(host, int(port))
    except OSError:
        await client.send_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        return
    await client.send_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay, client, server)
        nursery.start_soon(relay, server, client)


@pytest.mark.trio
@pytest.mark.parametrize("case", CASES, ids=str)
async def test_a_transport_through_a_proxy(case, monkeypatch):
    """A server and its clients, with the proxy between them."""
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, proxy, 0, host="127.0.0.1"))
        monkeypatch.setenv("HTTP_PROXY", f"127.0.0.1:{listener.socket.getsockname()[1]}")
        await case.attempt(ThroughProxy, "127.0.0.1:0")
        nursery.cancel_scope.cancel()
