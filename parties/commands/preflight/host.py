"""Checks of the host: its ports, clock, memory and descriptors."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import trio

from fsl_async.errors import FslError, MisuseError, sole_error
from fsl_async.task import Task
from parties.commands.preflight.files import is_running
from parties.commands.preflight.findings import Doubt
from parties.deployment.memory_need import PROCESS_BYTES, message_bytes, server_bytes
from parties.deployment.process_memory import room_for_parts, total_and_free_memory
from parties.deployment.server import starting_model
from parties.deployment.transports import named_transport
from parties.identity.keys import Identity
from parties.server.round.records import client_bytes
from parties.server.storage import HELD_BYTES
from parties.settings.party_file import ServerFile
from transport import (
    Channel,
    HandshakeSettings,
    Kind,
    Refusal,
    Role,
    Service,
    SocketTransport,
    Transport,
    UnreachableError,
)
from transport.socket_transport import WEB_SCHEMES
from transport.tcp import is_loopback, split_address
from transport.unix import SCHEME

TIMESYNC = Path("/run/systemd/timesync/synchronized")
TIMEX_BYTES = 512  # struct timex has 208 on 64-bit Linux; a larger buffer does no harm
CLOCK_ERROR = 5  # TIME_ERROR of adjtimex(2): the clock is not synchronised
GREATEST_ERROR = 3 * struct.calcsize("@l")  # where struct timex has maxerror, in microseconds


def transport(name: str) -> str:
    """What connects this party with the others can be imported."""
    made = named_transport(name)
    return "TCP, Unix-domain sockets and WebSockets" if isinstance(made, SocketTransport) else type(made).__qualname__


async def listening(tasks: Sequence[tuple[ServerFile, Task]], expected: str) -> str:
    """The server can listen where its file says; `expected` is where the task file says that it does."""
    file = tasks[0][0]
    if any(is_running(each.store) for each, _ in tasks):
        return f"{file.listen} is the running server's"
    if file.web.listen:
        await listened_once(SocketTransport((), file.web.certificate, file.web.key), file.web.listen, "web.listen")
    if file.transport or file.listen.startswith((SCHEME, *WEB_SCHEMES)):
        alone = msgspec.structs.replace(file.web, listen="")
        found = await listened_once(named_transport(file.transport, alone), file.listen, "listen")
        if found != expected:
            raise Doubt(f"{found} is free; the task file sends clients to {expected}: right only if that leads here")
        return f"{file.listen} is free"
    port = split_address(file.listen)[1]
    await listened_once(SocketTransport(), file.listen, "listen")
    if port == 0:
        raise Doubt(f"{file.listen}: the system chooses a port that nobody can know; give it a number")
    if file.web.listen and expected.startswith(WEB_SCHEMES):
        return f"{file.listen} and {file.web.listen} are free"
    if port != split_address(expected)[1]:
        raise Doubt(
            f"{file.listen} is free; the task file sends clients to {expected}, another port: right only if something "
            "between them forwards it"
        )
    return f"{file.listen} is free"


async def operator_port(tasks: Sequence[tuple[ServerFile, Task]]) -> str:
    """The server can listen at the operator's port, and others cannot reach it."""
    address = tasks[0][0].operator.listen
    if not address:
        raise Doubt('none: there is no /metrics, no /readyz and no page; set [operator] listen = "127.0.0.1:9470"')
    if any(is_running(each.store) for each, _ in tasks):
        return f"{address} is the running server's"
    await listened_once(SocketTransport(), address, "operator.listen")
    if not is_loopback(split_address(address)[0]):
        raise Doubt(f"{address} is free, but others may reach it: it shows them clients' names; keep it at 127.0.0.1")
    return f"{address} is free"


def clock() -> str:
    """The clock is synchronised; only people compare the two servers' times, so this is never more than a doubt.

    The other server is not asked for its time, because it tells a stranger nothing of the kind. Two clocks that are
    each synchronised to within some seconds differ by at most the sum of these.
    """
    synchronised, seconds = kernel_clock()
    if synchronised:
        return f"synchronised, to within {seconds:.2g} s as the kernel reckons; ask the same of the other server"
    if TIMESYNC.exists():
        return "synchronised, as systemd-timesyncd says; ask the same of the other server"
    raise Doubt(
        "the kernel does not say that the clock is synchronised: run chrony or systemd-timesyncd, or times in logs and "
        "on the page will differ between the servers (rounds do not depend on them)"
    )


def memory(tasks: Sequence[tuple[ServerFile, Task]]) -> str:
    """There is enough memory for the models and for messages, of all tasks at once."""
    needed = PROCESS_BYTES
    for file, task in tasks:
        model = blocks_of(file, task)
        held = server_bytes(task, model, message_bytes(task, model, file.limits.memory_bytes))
        parts = 2 * (room_for_parts() if len(tasks) == 1 else HELD_BYTES)
        needed += held - PROCESS_BYTES + min(parts, task.max_clients * client_bytes(task))
    there, free = total_and_free_memory()
    if needed > there:
        whose = "this task" if len(tasks) == 1 else f"these {len(tasks)} tasks"
        raise MisuseError(
            f"{needed / 1e6:,.0f} MB are needed for rounds of {whose} and for messages, and there are "
            f"{there / 1e6:,.0f} in all; take a larger machine or a smaller task, or lower limits.memory_bytes"
        )
    if needed > free:
        raise Doubt(f"{needed / 1e6:,.0f} MB will be needed, and {free / 1e6:,.0f} are free now")
    return f"{needed / 1e6:,.0f} MB will be needed, {free / 1e6:,.0f} are free"


def blocks_of(file: ServerFile, task: Task) -> dict[str, np.ndarray[Any, Any]]:
    """The model's blocks; where it cannot be read, which another check reports, blocks of the widest weights."""
    try:
        model = starting_model(file, task)
    except FslError:
        model = {}
    return {block.name: model.get(block.name, np.empty(0, np.float64)) for block in task.blocks}


def descriptors(file: ServerFile) -> str:
    """The process may open as many connections as the file allows."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * file.limits.connections
    if allowed != resource.RLIM_INFINITY and allowed < wanted:
        raise Doubt(
            f"{allowed:,} may be open: {allowed // 2:,} connections, not {file.limits.connections:,}; raise the limit "
            f"to {wanted:,} (`ulimit -n`, LimitNOFILE=), or lower limits.connections"
        )
    return f"enough for {file.limits.connections:,} connections"


async def listened_once(transport: Transport, address: str, key: str) -> str:
    """Listen, and end at once; returns where it was.

    Raises:
        UnreachableError: it cannot be listened at; the message names the key.
    """

    async def admit(key: bytes, payload: bytes) -> Refusal:
        return Refusal("this server is not started yet")

    async def close(channel: Channel) -> None:
        await channel.aclose()

    keys = Identity.generate("nobody")
    settings = HandshakeSettings(keys.channel_secret, Role.SERVER_0, Kind.LIVE, os.urandom)
    found: str = address
    try:
        with sole_error():
            async with trio.open_nursery() as nursery:
                found = await nursery.start(transport.listen, address, Service(settings, admit, close))
                nursery.cancel_scope.cancel()
    except UnreachableError as error:
        raise UnreachableError(f"{key} = {address!r}: {error}") from error
    return found


def kernel_clock() -> tuple[bool, float]:
    """What adjtimex(2) says: whether the kernel's clock is synchronised, and its greatest error in seconds."""
    library = ctypes.CDLL(None, use_errno=True)
    timex = ctypes.create_string_buffer(TIMEX_BYTES)
    state = library.adjtimex(timex)
    (error,) = struct.unpack_from("@l", timex, GREATEST_ERROR)
    return state not in (-1, CLOCK_ERROR), error / 1e6
