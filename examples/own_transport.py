"""A transport of one's own: TCP through an HTTP proxy, for clients whose network lets nothing else out.

A transport says how bare streams come about; handshake, records and limits are the same for all. `connect`, `serve` and
the files of parties take this one by name: `transport = "own_transport:ThroughProxy"`.
"""

import os

import trio

from transport import TcpTransport, Transport, UnreachableError


class ThroughProxy(Transport):
    """Dials through the proxy at `HTTP_PROXY`, host:port; listens like TCP."""

    def __init__(self) -> None:
        self.proxy = os.environ["HTTP_PROXY"]

    async def connect(self, address: str) -> trio.abc.Stream:
        """Open a bare stream; `dial`, which calls this, does the handshake."""
        stream = await TcpTransport().connect(self.proxy)
        try:
            await stream.send_all(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):  # byte by byte: what follows is not ours to read
                byte = await stream.receive_some(1)
                if not byte or len(answer) > 10_000:
                    raise UnreachableError(f"the proxy {self.proxy} has broken off: {answer!r}")
                answer += byte
            if answer.split(b" ")[1] != b"200":
                raise UnreachableError(f"the proxy {self.proxy} does not connect us with {address}: {answer!r}")
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return stream

    async def listen(self, address, service, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; a listener of one's own hands its sockets to `Listener(service).serve`."""
        await TcpTransport().listen(address, service, task_status=task_status)
