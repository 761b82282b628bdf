"""Channels over TCP.

An address is "host:port", or "[host]:port" for IPv6. Small messages are not delayed: trio sets TCP_NODELAY on both
ends. A peer that has vanished without a word (its host lost power, a middlebox forgot the connection) is noticed
because its signs of life are missing (see `transport.channel`); where nothing waits for it, by the system's keep-alive
probes.
"""

from __future__ import annotations

import ipaddress
import re
import socket as system
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import trio

from fsl_async.errors import MisuseError
from transport.errors import UnreachableError
from transport.listener import Accept, SocketsTransport
from transport.sockets import SocketStream, accept_from

_ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]]+)):([0-9]{1,5})")
_IPV6_NETWORK_BITS = 64
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds before the first probe, seconds between probes, probes without an answer; where the system has these."""


class TcpTransport(SocketsTransport):
    """Connects processes and hosts.

    An address is "host:port", or "[host]:port" for IPv6; a server may listen at port 0 and learn which it got.
    """

    async def connect(self, address: str) -> trio.abc.Stream:
        """Opens a TCP connection; see `Transport.connect`."""
        host, port = split_address(address)
        try:
            stream = await _connected(host, port)
        except UnicodeError as error:
            raise no_host(address, error) from error
        except OSError as error:
            raise UnreachableError(
                f"nothing listens at {address} ({error}); check the address and that the server runs"
            ) from error
        _keep_alive(stream)
        return SocketStream(stream)

    @asynccontextmanager
    async def bound(self, address: str) -> AsyncIterator[tuple[str, Sequence[Accept]]]:
        """Binds; port 0 lets the system choose one. See `SocketsTransport.bound`."""
        host, port = split_address(address)
        async with AsyncExitStack() as open_sockets:
            sockets = await bind(host, port)
            for socket in sockets:
                await open_sockets.enter_async_context(socket)
            found = join_address(host, sockets[0].socket.getsockname()[1])
            yield found, [partial(accept_from, socket, _origin) for socket in sockets]


async def _connected(host: str, port: int) -> trio.SocketStream:
    """Connects: to a number directly, to a name at whichever of its addresses answers first."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return await trio.open_tcp_stream(host, port)
    family = system.AF_INET if isinstance(number, ipaddress.IPv4Address) else system.AF_INET6
    socket = trio.socket.socket(family, system.SOCK_STREAM)
    try:
        await socket.connect((host, port))
    except BaseException:
        socket.close()
        raise
    return trio.SocketStream(socket)


def _origin(stream: trio.SocketStream) -> str:
    origin = origin_of(stream.socket.getpeername()[0])
    _keep_alive(stream)
    return origin


async def bind(host: str, port: int) -> list[trio.SocketListener]:
    """Opens the listening sockets; a port the system chooses is good for one of them only.

    Raises:
        UnreachableError: the address cannot be listened at.
        MisuseError: the host is not the name of one.
    """
    try:
        sockets = await trio.open_tcp_listeners(port, host=host)
    except UnicodeError as error:
        raise no_host(join_address(host, port), error) from error
    except OSError as error:
        raise UnreachableError(
            f"cannot listen at {join_address(host, port)} ({error}); is the address this host's, is the port free?"
        ) from error
    if port == 0:
        for superfluous in sockets[1:]:
            await superfluous.aclose()
        del sockets[1:]
    return sockets


def origin_of(host: str) -> str:
    """Returns what limits count a host under: an IPv4 address, or the network that one IPv6 host commonly has."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, _IPV6_NETWORK_BITS), strict=False))


def _keep_alive(stream: trio.SocketStream) -> None:
    with suppress(OSError):  # a connection that is gone already needs no probes
        stream.setsockopt(system.SOL_SOCKET, system.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(system, name):
                stream.setsockopt(system.IPPROTO_TCP, getattr(system, name), value)


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of an address.

    Raises:
        MisuseError: it is none.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) > 65_535:
        raise MisuseError(f"{address!r} is not an address of the form host:port or [host]:port")
    return match[1] or match[2], int(match[3])


def is_loopback(host: str) -> bool:
    """Tells whether a host, with or without brackets, can be reached from this host alone."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def no_host(address: str, error: UnicodeError) -> MisuseError:
    """Returns the error for a host that no name server can be asked for."""
    return MisuseError(f"{address!r} is not an address: its host is not the name of one ({error})")


def join_address(host: str, port: int) -> str:
    """Makes an address of a host and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
