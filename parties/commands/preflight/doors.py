"""Checks of a server's doors: their key, their addresses, room for their processes; and of a door on its own host."""

from __future__ import annotations

import importlib.metadata
import os
import socket
import stat

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from fsl_async.wire.codec import encode
from fsl_async.wire.door_messages import DoorHello
from parties.commands.preflight.files import is_running
from parties.commands.preflight.findings import Doubt
from parties.commands.preflight.host import blocks_of, host_and_port, listened_once, total_and_free_memory
from parties.deployment.blobs import open_blobs
from parties.deployment.door_keys import check_door_blobs, own_channel_keys
from parties.deployment.memory_need import DOOR_BYTES, message_bytes
from parties.files.disk import exists
from parties.settings.blobs_table import blobs_folder
from parties.settings.doors_table import check_link
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from transport import HandshakeSettings, HandshakeTimeoutError, Kind, Port, Role, SocketTransport, UnreachableError
from transport.unix import SCHEME, socket_path

__all__ = ["blobs", "core", "key_folder", "keys", "link", "listening", "memory", "one_memory", "taken_in"]

PATIENCE = 10.0
OTHERS = stat.S_IWGRP | stat.S_IWOTH


def keys(file: ServerFile, deployment: Deployment) -> str:
    """Doors have the server's channel key, and nothing that signs."""
    own_channel_keys(file, deployment)
    return f"{file.doors.keys} holds the channel key of S{file.server} alone, and is its owner's alone"


async def core(file: ServerFile) -> str:
    """The server can take its doors, and on this host nobody else's process comes near the socket."""
    address = file.doors.core
    if address.startswith(SCHEME):
        path = socket_path(address)
        _check_folder(file, path.parent)
    if is_running(file.store):
        return f"{address} is the running server's"
    await listened_once(SocketTransport(mode=0o600), address, "doors.core")
    if address.startswith(SCHEME):
        return f"{address} is free, in a folder that nobody else can write"
    return f"{address} is free; only who holds the server's channel key is taken for a door there"


def _check_folder(file: ServerFile, folder: os.PathLike[str]) -> None:
    try:
        found = os.stat(folder)
    except OSError as error:
        raise MisuseError(
            f"doors.core = {file.doors.core!r}: {os.fspath(folder)} cannot be looked into ({error.strerror}); make it, "
            f"as its owner: `install --directory --mode 0700 {os.fspath(folder)}`"
        ) from error
    if found.st_mode & OTHERS and not found.st_mode & stat.S_ISVTX:
        raise MisuseError(
            f"doors.core = {file.doors.core!r}: others can write {os.fspath(folder)}, and take the socket away from "
            "the doors; `chmod go-w` it, or name a folder of the server's own"
        )


async def link(file: ServerFile, deployment: Deployment) -> str:
    """S1 finds the core of S0 where the task file says."""
    check_link(file, deployment)
    if file.server == 1:
        return "S1 dials S0, and listens for no server"
    address, named = file.doors.link, deployment.link
    if is_running(file.store):
        return f"{address} is the running server's"
    await listened_once(SocketTransport(), address, "doors.link")
    if address.startswith(SCHEME) != named.startswith(SCHEME) or (
        not address.startswith(SCHEME) and host_and_port(address)[1] != host_and_port(named)[1]
    ):
        raise Doubt(
            f"{address} is free; the task file sends S1 to {named}, another port: right only if something between them "
            "forwards it"
        )
    return f"{address} is free"


async def listening(file: ServerFile, deployment: Deployment) -> str:
    """Doors can listen together where the task file sends clients."""
    if is_running(file.store):
        return f"{file.listen} is the running server's"
    expected = deployment.addresses[file.server]
    await listened_once(SocketTransport(Port.SHARED), file.listen, "listen")
    if file.listen.startswith(SCHEME):
        return f"{file.listen} is free"
    if host_and_port(file.listen)[1] != host_and_port(expected)[1]:
        raise Doubt(
            f"{file.listen} is free; the task file sends clients to {expected}, another port: right only if something "
            "between them forwards it"
        )
    return f"{file.listen} is free, and its port can be shared by several doors"


def memory(file: ServerFile, task: Task) -> str:
    """There is enough memory for the doors of this host, besides the server's."""
    return _memory(file, task, file.doors.count, f"{file.doors.count} doors of this host")


def one_memory(file: ServerFile, task: Task) -> str:
    """There is enough memory for one door, on a host of its own."""
    return _memory(file, task, 1, "a door")


def _memory(file: ServerFile, task: Task, count: int, who: str) -> str:
    needed = count * (DOOR_BYTES + message_bytes(task, blocks_of(file, task), file.limits.memory_bytes or None))
    there, free = total_and_free_memory()
    words = f"{who} {'takes' if count == 1 else 'take'} up to {needed / 1e6:,.0f} MB"
    if needed > there:
        raise MisuseError(f"{words}, and there are {there / 1e6:,.0f} in all; lower doors.count or limits.memory_bytes")
    if needed > free:
        raise Doubt(f"{words}, and {free / 1e6:,.0f} are free now")
    return f"{words}, {free / 1e6:,.0f} are free"


# ---- a door, on its own host


def key_folder(file: ServerFile) -> str:
    """Nobody else can replace the door's key, and the key that signs is not on this host."""
    keys = file.doors.keys or file.identity
    folder = keys.absolute().parent
    if folder.stat().st_mode & OTHERS:
        raise Doubt(f"others can write {folder}, and replace the key in it; `chmod go-w` it")
    if exists(file.identity):
        raise Doubt(
            f"{file.identity} is here as well, the file of the keys that sign: right on the server's own host alone, "
            "where `serve` starts the doors; on a door's host it has no business"
        )
    return f"{folder} can be written by its owner alone, and the keys that sign are not here"


async def taken_in(file: ServerFile, deployment: Deployment) -> str:
    """The server's core takes this door: it has the release, the task and the key of its server.

    Raises:
        Doubt: the core cannot be reached; a door waits for it.
        RefusedError: the core refuses it; the message says why.
    """
    keys, address = own_channel_keys(file, deployment), file.doors.core
    release, host = importlib.metadata.version("fsl-async"), socket.gethostname()[:48]
    hello = DoorHello(
        release=release, task=deployment.task.digest(), door=f"preflight-{host}", host=host, process=os.getpid()
    )
    role = Role.DOOR_1 if file.server else Role.DOOR_0
    said = HandshakeSettings(keys.secret, role, Kind.LIVE, os.urandom, bytes(encode(hello)[0]), deadline=PATIENCE)
    try:
        channel = await SocketTransport().dial(address, keys.public, said)
    except (UnreachableError, HandshakeTimeoutError) as error:
        raise Doubt(f"the core of S{file.server}: {error}; a door waits for it") from error
    await channel.aclose()
    return f"S{file.server} at {address} takes this door: both have release {release} and the same task"


async def blobs(file: ServerFile, deployment: Deployment) -> str:
    """The door reaches the blobs of its server.

    Raises:
        StorageError: it does not; a folder of another host is of no use to it.
    """
    check_door_blobs(file)
    opened = await open_blobs(file, deployment, create=False)
    await opened.aclose()
    where = file.blobs.url or str(blobs_folder(file))
    return f"{where} can be written, and belongs to S{file.server}"
