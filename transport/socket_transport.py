"""Channels over whatever an address of this system's sockets names: TCP, a Unix-domain socket or a WebSocket.

Deployed parties use this transport if they are not given another one, so that an address alone decides.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from pathlib import Path

import trio

from fsl_async.errors import MisuseError
from transport.listener import Accept, SocketsTransport
from transport.tcp import TcpTransport, split_address
from transport.unix import SCHEME, UnixTransport, socket_path

WEB_SCHEMES = ("ws://", "wss://")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d+$)")


class SocketTransport(SocketsTransport):
    """Connects over TCP, Unix-domain sockets or WebSockets, as each address says.

    "host:port" and "[host]:port" are TCP, "unix:/absolute/path" is a Unix-domain socket, "ws://host:port/path" and
    "wss://host:port/path" are WebSockets; other addresses are refused.

    Args:
        also: where it listens besides the address that it is given; the limits hold for all of them together.
        certificate: the file of the certificates that it shows at wss, and
        key: that of their secret key.

    Attributes:
        also_bound: how those of `also` are dialled, while it listens.
    """

    def __init__(self, also: Sequence[str] = (), certificate: Path | None = None, key: Path | None = None) -> None:
        self.also = tuple(also)
        self.also_bound: list[str] = []
        self._certificate, self._key = certificate, key

    async def connect(self, address: str) -> trio.abc.Stream:
        """Opens a connection; see `Transport.connect`."""
        return await self._for(address).connect(address)

    @asynccontextmanager
    async def bound(self, address: str) -> AsyncIterator[tuple[str, Sequence[Accept]]]:
        """Binds to the address and to the others; reports the address, and has those in `also_bound`."""
        async with AsyncExitStack() as stack:
            every = [await stack.enter_async_context(self._for(one).bound(one)) for one in (address, *self.also)]
            (found, _), *others = every
            self.also_bound = [each for each, _ in others]
            yield found, [accept for _, sources in every for accept in sources]

    def _for(self, address: str) -> SocketsTransport:
        check_address(address)
        if address.startswith(WEB_SCHEMES):
            from transport.web import WebTransport  # TLS and HTTP are not loaded by who needs neither

            return WebTransport(self._certificate, self._key)
        return UnixTransport() if address.startswith(SCHEME) else TcpTransport()


def check_address(address: str) -> None:
    """Refuses what is no address of `SocketTransport`.

    Raises:
        MisuseError: the address has a scheme that is unknown here, or is malformed; the message says which forms there
            are.
    """
    if address.startswith(SCHEME):
        socket_path(address)
        return
    if address.startswith(WEB_SCHEMES):
        from transport.web import split_web_address

        split_web_address(address)
        return
    scheme = _SCHEME.match(address)
    if scheme is not None and not _is_ipv6(address.rpartition(":")[0]):
        raise MisuseError(
            f"{address!r} is not an address: there is no transport for {scheme[0]!r}; host:port is TCP, "
            f"{SCHEME}/absolute/path a Unix-domain socket, wss://host/path a WebSocket; others need a transport of "
            "your own (docs/extending.md)"
        )
    split_address(address)


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).version == 6
    except ValueError:
        return False
