"""Channels over TCP.

An address is "host:port", or "[host]:port" for IPv6. Small messages are not delayed: trio sets TCP_NODELAY on both
ends. Several processes may listen at one port, where each of them asks for that; the system then spreads connections
over them. A peer that has vanished without a word (its host lost power, a middlebox forgot the connection) is noticed
because its signs of life are missing (see `transport.channel`); where nothing waits for it, by the system's keep-alive
probes.
"""

from __future__ import annotations

import enum
import errno
import ipaddress
import os
import re
import socket as system
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import trio

from fsl_async.errors import MisuseError
from transport.errors import UnreachableError
from transport.interface import LISTEN, Transport
from transport.listener import Listener, Service
from transport.ports import users_at
from transport.sockets import accept, within_descriptors

_ADDRESS = re.compile(r"(?:\[([^\[\]]+)\]|([^\[\]]+)):([0-9]{1,5})")
_IPV6_NETWORK_BITS = 64
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds before the first probe, seconds between probes, probes without an answer; where the system has these."""


_BACKLOG = 1_024


class Port(enum.Enum):
    """Who may listen at a port that a process listens at.

    Doors of one server share one: `TcpTransport(Port.SHARED)`.
    """

    OWN = "own"
    """Nobody else."""

    SHARED = "shared"
    """Further processes of the same user that ask for it too: each connection goes to one of them (SO_REUSEPORT)."""


class TcpTransport(Transport):
    """Connects processes and hosts.

    An address is "host:port", or "[host]:port" for IPv6; a server may listen at port 0 and learn which it got.

    Args:
        port: whether further processes may listen where this one does.

    Raises:
        MisuseError: ports are to be shared, and this system cannot.
    """

    def __init__(self, port: Port = Port.OWN) -> None:
        if port is Port.SHARED:
            require_shared_ports()
        self._port = port

    async def connect(self, address: str) -> trio.abc.Stream:
        """Opens a TCP connection; see `Transport.connect`."""
        host, port = split_address(address)
        try:
            stream = await trio.open_tcp_stream(host, port)
        except UnicodeError as error:
            raise _no_host(address, error) from error
        except OSError as error:
            raise UnreachableError(
                f"nothing listens at {address} ({error}); check the address and that the server runs"
            ) from error
        _keep_alive(stream)
        return stream

    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves at an address; port 0 lets the system choose one. See `Transport.listen`.

        A port that is shared needs a number.

        Connections are limited, with a warning, to half of the descriptors that the process may open.
        """
        LISTEN.require_trio()
        host, port = split_address(address)
        sockets = await (_bind(host, port) if self._port is Port.OWN else _bind_shared(host, port))
        listener = Listener(replace(service, limits=within_descriptors(service.limits)))
        async with trio.open_nursery() as nursery:
            for socket in sockets:
                nursery.start_soon(_serve, listener, socket)
            task_status.started(_join(host, sockets[0].socket.getsockname()[1]))


async def _serve(listener: Listener, socket: trio.SocketListener) -> None:
    async with socket:
        await listener.serve(partial(accept, socket, _origin))


def _origin(stream: trio.SocketStream) -> str:
    origin = origin_of(stream.socket.getpeername()[0])
    _keep_alive(stream)
    return origin


async def _bind(host: str, port: int) -> list[trio.SocketListener]:
    """Opens the listening sockets; a port the system chooses is good for one of them only."""
    try:
        sockets = await trio.open_tcp_listeners(port, host=host)
    except UnicodeError as error:
        raise _no_host(_join(host, port), error) from error
    except OSError as error:
        raise UnreachableError(
            f"cannot listen at {_join(host, port)} ({error}); is the address this host's, is the port free?"
        ) from error
    if port == 0:
        for superfluous in sockets[1:]:
            await superfluous.aclose()
        del sockets[1:]
    return sockets


def require_shared_ports() -> None:
    """Refuse a system on which processes cannot share a port.

    Raises:
        MisuseError: this is one.
    """
    if not hasattr(system, "SO_REUSEPORT"):
        raise MisuseError(
            "this system has no SO_REUSEPORT, so that several processes cannot listen at one port; give each an "
            "address of its own and put something before them that spreads connections"
        )


async def _bind_shared(host: str, port: int) -> list[trio.SocketListener]:
    """Opens listening sockets at a port where further processes of this user may listen.

    Linux lets nobody but the user who was first there share a port, and only if the first one shares it.
    """
    if port == 0:
        raise MisuseError(
            f"{_join(host, port)}: the system would choose another port for each process; processes that listen "
            "together need a port with a number"
        )
    sockets: list[trio.SocketListener] = []
    try:
        flags = system.AI_PASSIVE
        for family, *_, place in await trio.socket.getaddrinfo(host, port, type=system.SOCK_STREAM, flags=flags):
            sockets.append(await _shared(family, place))
    except BaseException as error:
        for opened in sockets:
            await trio.aclose_forcefully(opened)
        if isinstance(error, UnicodeError):
            raise _no_host(_join(host, port), error) from error
        if isinstance(error, OSError):
            raise _cannot_share(_join(host, port), port, error) from error
        raise
    return sockets


async def _shared(family: int, place: tuple[Any, ...]) -> trio.SocketListener:
    with ExitStack() as opened:
        socket = opened.enter_context(trio.socket.socket(family, system.SOCK_STREAM))
        if family == system.AF_INET6:
            socket.setsockopt(system.IPPROTO_IPV6, system.IPV6_V6ONLY, 1)
        socket.setsockopt(system.SOL_SOCKET, system.SO_REUSEADDR, 1)
        socket.setsockopt(system.SOL_SOCKET, system.SO_REUSEPORT, 1)
        await socket.bind(place)
        socket.listen(_BACKLOG)
        opened.pop_all()
        return trio.SocketListener(socket)


def _cannot_share(address: str, port: int, error: OSError) -> UnreachableError:
    """The error for an address that cannot be listened at; names the users that have the port, as far as one sees."""
    if error.errno != errno.EADDRINUSE:
        return UnreachableError(
            f"cannot listen at {address} ({error}); is the address this host's, may this user take the port?"
        )
    others = users_at(port) - {os.geteuid()}
    if others:
        named = ", ".join(str(user) for user in sorted(others))
        return UnreachableError(
            f"cannot listen at {address}: processes of another user (user id {named}) listen at port {port}; stop "
            "them, or run all that share the port as one user"
        )
    return UnreachableError(
        f"cannot listen at {address}: a process that does not share port {port} listens there, such as a server "
        "without doors; stop it, or choose another port"
    )


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


def _no_host(address: str, error: UnicodeError) -> MisuseError:
    """The error for a host that no name server can be asked for."""
    return MisuseError(f"{address!r} is not an address: its host is not the name of one ({error})")


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
