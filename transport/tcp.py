"""Channels over TCP.

An address is "host:port", or "[host]:port" for IPv6. Small messages are not held back: trio sets TCP_NODELAY on both
ends.
"""

from __future__ import annotations

import errno
import resource
from dataclasses import replace

import trio

from fsl_async.errors import MisuseError
from transport.errors import UnreachableError
from transport.interface import Transport
from transport.limits import Limits
from transport.listener import Listener, Service

__all__ = ["TcpTransport"]

_ACCEPT_AGAIN = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED}
_ACCEPT_PAUSE = 0.1


class TcpTransport(Transport):
    """Connects processes and hosts."""

    async def connect(self, address: str) -> trio.abc.Stream:
        """Opens a TCP connection; see `Transport.connect`."""
        host, port = _split(address)
        try:
            return await trio.open_tcp_stream(host, port)
        except OSError as error:
            raise UnreachableError(
                f"nothing listens at {address} ({error}); check the address and that the server runs"
            ) from error

    async def listen(
        self,
        address: str,
        service: Service,
        *,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serves at an address; port 0 lets the system choose one. See `Transport.listen`.

        Connections are limited to half of the descriptors that the process may open, if that is less than the limit.
        """
        host, port = _split(address)
        sockets = await _bind(host, port)
        listener = Listener(replace(service, limits=_within_descriptors(service.limits)))
        async with trio.open_nursery() as nursery:
            for socket in sockets:
                nursery.start_soon(_serve, listener, socket)
            task_status.started(_join(host, sockets[0].socket.getsockname()[1]))


class _SocketSource:
    """Accepts from one listening socket."""

    def __init__(self, listener: trio.SocketListener) -> None:
        self._listener = listener

    async def accept(self) -> tuple[trio.abc.Stream, str]:
        while True:
            try:
                stream = await self._listener.accept()
            except OSError as error:
                if error.errno not in _ACCEPT_AGAIN:
                    raise
                await trio.sleep(_ACCEPT_PAUSE)
                continue
            try:
                return stream, stream.socket.getpeername()[0]
            except OSError:  # the peer left before we could ask who it is
                await stream.aclose()


async def _serve(listener: Listener, socket: trio.SocketListener) -> None:
    async with socket:
        await listener.serve(_SocketSource(socket))


async def _bind(host: str, port: int) -> list[trio.SocketListener]:
    """Opens the listening sockets; a port the system chooses is good for one of them only."""
    try:
        sockets = await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        raise UnreachableError(
            f"cannot listen at {_join(host, port)} ({error}); is the address this host's, is the port free?"
        ) from error
    if port == 0:
        for superfluous in sockets[1:]:
            await superfluous.aclose()
        del sockets[1:]
    return sockets


def _within_descriptors(limits: Limits) -> Limits:
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=max(1, min(limits.connections, descriptors // 2)))


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise MisuseError(f"{address!r} is not an address of the form host:port or [host]:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
