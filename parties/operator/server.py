"""The operator port: serves what `parties.operator` knows of a server's process at one local address."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import trio

from fsl_async.errors import MisuseError, StorageError
from parties.events import Warned
from parties.operator.http import HttpLimits, serve_http
from parties.operator.observer import OperatorObserver
from parties.operator.overview import OperatedProcess
from parties.operator.resources import Resources, host_of
from parties.operator.token import OperatorToken, written_token
from transport import UnreachableError
from transport.tcp import bind, is_loopback, join_address, split_address

TOKEN_RETRY_SECONDS = 5.0
"""How long to wait, on a full disk, before the token is written again."""


async def serve_operator(
    operated: OperatedProcess,
    address: str,
    token_file: Path,
    *,
    hosts: Collection[str] = (),
    limits: HttpLimits | None = None,
    task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the operator port until cancelled.

    Args:
        operated: the server's process.
        address: host:port; everybody who can connect to it can read, so it should be a loopback address.
        token_file: the file into which the token is written for as long as this runs; changes need the token.
        hosts: names by which requests may address this host, besides IP addresses and localhost.
        limits: limits on what clients may use.
        task_status: receives the address, with the port that the system chose if the given port is 0.

    Raises:
        MisuseError: the address is invalid.
        UnreachableError: the address is in use, or not an address of this host.
        StorageError: the token cannot be written.
    """
    with written_token(token_file) as token:
        sockets, observer = await _bind(address), operated.process
        _warn(observer, sockets)
        resources = Resources(operated, token, {*hosts, host_of(address)})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_write_when_there_is_room, observer, token, token_file)
            nursery.start_soon(observer.lag.watch)
            nursery.start_soon(serve_http, sockets, resources.answer, limits or HttpLimits())
            task_status.started(join_address(host_of(address), sockets[0].socket.getsockname()[1]))


async def _write_when_there_is_room(observer: OperatorObserver, token: OperatorToken, path: Path) -> None:
    """On a full disk, the port answers queries at once; changes must wait until there is room for the token."""
    reported = ""
    while not token.written:
        try:
            token.write(path)
        except StorageError as error:
            if str(error) != reported:
                observer(Warned(about="store", explanation=f"{error}; it is tried again"))
            reported = str(error)
            await trio.sleep(TOKEN_RETRY_SECONDS)


async def _bind(address: str) -> list[trio.SocketListener]:
    host, port = split_address(address)
    if not host_of(address):
        raise MisuseError(f"{address!r} is not an address of the form host:port or [host]:port")
    try:
        return await bind(host, port)
    except UnreachableError as error:
        raise UnreachableError(f"the operator's port {error}") from error


def _warn(observer: OperatorObserver, sockets: list[trio.SocketListener]) -> None:
    for socket in sockets:
        bound = socket.socket.getsockname()[0]
        if not is_loopback(bound):
            observer(
                Warned(
                    about="operator-port",
                    explanation=f"the operator's port listens at {bound}: whoever reaches it reads the clients' names "
                    "and what the server does; let it listen at 127.0.0.1, and reach it through a tunnel",
                )
            )
