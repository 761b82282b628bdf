"""The operator's port: everything that `parties.operator` has to show of a running server, at one local address."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path

import trio

from fsl_async.errors import MisuseError, StorageError
from parties.events import Warned
from parties.operator.http import HttpLimits, serve_http
from parties.operator.observer import Operations
from parties.operator.overview import Overview
from parties.operator.resources import Resources, host_of
from parties.operator.token import OperatorToken, written_token
from transport import UnreachableError

__all__ = ["serve_operator"]

TOKEN_RETRY_SECONDS = 5.0
"""How long to wait, on a full disk, before the token is written again."""


async def serve_operator(
    operations: Operations,
    overview: Overview,
    address: str,
    token_file: Path,
    *,
    hosts: Collection[str] = (),
    limits: HttpLimits | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the operator until cancelled; reports the address, with the port that the system chose for port 0.

    Args:
        operations: what hears the server.
        overview: the server.
        address: host:port; whoever reaches it can look, so it should be a loopback address.
        token_file: where the token that changes anything is written, for as long as this runs.
        hosts: names by which this host may be called, besides its addresses and localhost.
        limits: what whoever connects is allowed.
        task_status: hears the address.

    Raises:
        MisuseError: the address is none.
        UnreachableError: the address is taken, or not this host's.
        StorageError: the token cannot be written.
    """
    with written_token(token_file) as token:
        sockets = await _bind(address)
        _warn(operations, sockets)
        resources = Resources(operations, overview, token, {*hosts, host_of(address)})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write_when_there_is_room, operations, token, token_file)
            nursery.start_soon(operations.lag.watch)
            nursery.start_soon(serve_http, sockets, resources.answer, limits or HttpLimits())
            task_status.started(_join(host_of(address), sockets[0].socket.getsockname()[1]))


async def _write_when_there_is_room(operations: Operations, token: OperatorToken, path: Path) -> None:
    """On a full disk all can be looked at through the port, and nothing changed until there is room for the token."""
    told = ""
    while not token.written:
        try:
            token.write(path)
        except StorageError as error:
            if str(error) != told:
                operations(Warned(about="store", explanation=f"{error}; it is tried again"))
            told = str(error)
            await trio.sleep(TOKEN_RETRY_SECONDS)


async def _bind(address: str) -> list[trio.SocketListener]:
    host, (_, colon, port) = host_of(address), address.rpartition(":")
    if not host or not colon or not port.isdecimal() or int(port) > 65_535:
        raise MisuseError(f"{address!r} is not an address of the form host:port or [host]:port")
    try:
        sockets = await trio.open_tcp_listeners(int(port), host=host)
    except OSError as error:
        raise UnreachableError(
            f"the operator's port cannot listen at {address} ({error}); is the address this host's, is the port free?"
        ) from error
    if port == "0":
        for superfluous in sockets[1:]:
            await superfluous.aclose()
        del sockets[1:]
    return sockets


def _warn(operations: Operations, sockets: list[trio.SocketListener]) -> None:
    for socket in sockets:
        bound = socket.socket.getsockname()[0]
        if not ip_address(bound.partition("%")[0]).is_loopback:
            operations(
                Warned(
                    about="operator-port",
                    explanation=f"the operator's port listens at {bound}: whoever reaches it reads the clients' names "
                    "and what the server does; let it listen at 127.0.0.1, and reach it through a tunnel",
                )
            )


def _join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
