"""Checks of the other parties: whether they can be reached, hold the keys in the task file and have the same task."""

from __future__ import annotations

import os
import socket

import trio

from fsl_async.errors import ChannelError, FslError, MisuseError
from parties.commands.preflight.findings import Doubt
from parties.deployment.connecting import connect
from parties.deployment.transports import named_transport
from parties.identity.handshake import are_marks, serves
from parties.identity.keys import Identity
from parties.settings.party_file import ClientFile
from parties.settings.task_file import Deployment
from transport import HandshakeSettings, HandshakeTimeoutError, Kind, Role, UnreachableError
from transport.socket_transport import WEB_SCHEMES
from transport.tcp import is_loopback, split_address
from transport.unix import SCHEME

PATIENCE = 10.0
LOOPBACK = "127.0.0.1"


class _Seen(FslError):  # noqa: N818 - it never leaves this module
    """The other side has shown its key and its task; it need not learn who asks."""


async def server(deployment: Deployment, transport: str, number: int, where: str = "") -> str:
    """A server can be reached, holds its key and has our task: a handshake, ended before we say who we are.

    Raises:
        UnreachableError: nothing listens there.
        MisuseError: it has another task.
        ChannelError: something else is wrong; the class says what.
    """
    address, ours = where or deployment.addresses[number], deployment.task.digest()

    def check(payload: bytes) -> None:
        if are_marks(payload) and not serves(payload, ours):
            raise MisuseError(
                f"S{number} at {address} does not serve this task, whose digest is {ours.hex()[:16]}…, among its "
                "tasks; compare `sha256sum task.toml` with its operator"
            )
        if not serves(payload, ours):
            raise MisuseError(
                f"S{number} at {address} runs another task: its digest is {payload.hex()[:16]}…, ours is "
                f"{ours.hex()[:16]}…; compare `sha256sum task.toml` with its operator"
            )
        raise _Seen

    settings = HandshakeSettings(
        Identity.generate("nobody").channel_secret, Role.CLIENT, Kind.LIVE, os.urandom, deadline=PATIENCE
    )
    try:
        channel = await named_transport(transport).dial(address, deployment.identity(number).channel, settings, check)
    except _Seen:
        return f"S{number} at {address} holds its key and runs the same task"
    await channel.aclose()
    raise ChannelError(f"S{number} at {address} did not show its task; is its version another?")


async def reachable(deployment: Deployment, transport: str, number: int, where: str = "") -> str:
    """The other server can be reached; `where`: at another address than clients reach it.

    Raises:
        Doubt: it cannot; one of the two servers is started first.
    """
    try:
        return await server(deployment, transport, number, where)
    except (UnreachableError, HandshakeTimeoutError) as error:
        raise Doubt(f"S{number}: {error}; if it is not started yet, that is all") from error


async def acceptance(file: ClientFile) -> str:
    """Both servers admit this client. The check does not use up a token.

    Raises:
        Doubt: the client must enrol first, and has a token for that.
        ChannelError: a server refuses; the message says why.
        MisuseError: a server has another task; the message names the field.
    """
    transport = named_transport(file.transport)
    try:
        with trio.fail_after(2 * PATIENCE):
            async with connect(file.task, file.identity, state=None, patience=0, transport=transport) as client:
                return f"both servers know {client.name!r}"
    except trio.TooSlowError as error:
        raise HandshakeTimeoutError(f"the servers have not answered within {2 * PATIENCE:g} s") from error
    except ChannelError as error:
        if file.token is not None and "enrols with a token" in str(error):
            raise Doubt("not enrolled yet; the token is used with the first call") from error
        raise


async def separation(deployment: Deployment) -> str:
    """The two servers are on different hosts."""
    places = [await _addresses_of(address) for address in deployment.addresses]
    shared = places[0] & places[1]
    local = [address for found in places for address in found if is_loopback(address)]
    if shared or local:
        raise Doubt(
            f"both servers are at {', '.join(sorted(shared or set(local)))}: anybody with access to that host can "
            "read every client's rows; a deployment has two hosts"
        )
    if not all(places):
        raise Doubt("a server's name cannot be resolved here, so that nobody knows whether they are two hosts")
    return "two hosts, as far as their addresses tell"


async def operators(deployment: Deployment) -> str:
    """The two servers have different operators."""
    names = [entry.operator for entry in deployment.servers]
    if not all(names):
        raise Doubt(
            "the task file does not say who runs the servers, and clients must trust that they are two; `fsl-async "
            'peers add … --operator "NAME"`'
        )
    if names[0].strip().casefold() == names[1].strip().casefold():
        raise Doubt(
            f"both servers are run by {names[0]!r}: it can read every client's rows; privacy needs two operators"
        )
    return " and ".join(names)


async def _addresses_of(address: str) -> set[str]:
    if address.startswith(SCHEME):
        return {LOOPBACK}
    try:
        if address.startswith(WEB_SCHEMES):
            from transport.web import split_web_address

            address = split_web_address(address).place
        host, port = split_address(address)
    except MisuseError:  # an address of a transport of their own
        return set()
    try:
        found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(entry[4][0]) for entry in found}
