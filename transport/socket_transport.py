"""Channels over whatever an address of this system's sockets names: TCP or a Unix-domain socket.

Deployed parties use this transport if they are not given another one, so that an address alone decides.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

import trio

from fsl_async.errors import MisuseError
from transport.listener import Service, Transport
from transport.tcp import TcpTransport, split_address
from transport.unix import SCHEME, UnixTransport, socket_path

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?!\d+$)")


class SocketTransport(Transport):
    """Connects over TCP or Unix-domain sockets, as each address says.

    "host:port" and "[host]:port" are TCP, "unix:/absolute/path" is a Unix-domain socket; other addresses are refused.
    """

    def __init__(self) -> None:
        self._tcp, self._unix = TcpTransport(), UnixTransport()

    async def connect(self, address: str) -> trio.abc.Stream:
        """Opens a connection; see `Transport.connect`."""
        return await self._for(address).connect(address)

    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves at an address; see `Transport.listen`."""
        await self._for(address).listen(address, service, task_status=task_status)

    def _for(self, address: str) -> Transport:
        check_address(address)
        return self._unix if address.startswith(SCHEME) else self._tcp


def check_address(address: str) -> None:
    """Refuses what is no address of `SocketTransport`.

    Raises:
        MisuseError: the address has a scheme that is unknown here, or is malformed; the message says which forms there
            are.
    """
    if address.startswith(SCHEME):
        socket_path(address)
        return
    scheme = _SCHEME.match(address)
    if scheme is not None and not _is_ipv6(address.rpartition(":")[0]):
        raise MisuseError(
            f"{address!r} is not an address: there is no transport for {scheme[0]!r}; host:port is TCP, "
            f"{SCHEME}/absolute/path a Unix-domain socket; others need a transport of your own (docs/extending.md)"
        )
    split_address(address)


def _is_ipv6(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).version == 6
    except ValueError:
        return False
