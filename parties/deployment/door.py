"""A door in a process of its own: what `fsl-async door` runs, by itself or as a child of `fsl-async serve`.

    SIGTERM   take no further client, and finish what is under way, for a while; a second SIGTERM ends at once
    SIGINT    end at once
    SIGHUP    read the log level again

Rules: a door reads the server's file, the task file and the server's channel key, and nothing else of the server's: not
its keys that sign, not its store, not its model. It needs no compiled kernels, and loads none.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import trio

from fsl_async.errors import MisuseError
from parties.compute import KernelFreeLane
from parties.deployment.blobs import open_blobs
from parties.deployment.door_keys import check_door_blobs, own_channel_keys
from parties.deployment.process_memory import collecting_seldom, keep_freed_memory
from parties.deployment.server import conversation_limits, limits_of
from parties.deployment.signals import late_hangups_ignored
from parties.deployment.supervisor import forbid_core_dumps, tell_supervisor
from parties.operator import Log
from parties.operator.log_lines import EventLog
from parties.server.door.door import Door, DoorSetup
from parties.settings.host_file import HostFile
from parties.settings.party_file import ServerFile
from parties.settings.task_file import Deployment
from parties.storage.blobs.blobs import Blobs
from transport import Kind, Port, SocketTransport

__all__ = ["LONGEST_NAME", "DoorServed", "run_door"]

_log = logging.getLogger("parties.serving")

STOP_SECONDS = 10.0
"""Seconds that what is under way has to end after SIGTERM, unless the command says another number."""

LONGEST_NAME = 64

Ending: TypeAlias = Literal["stopped", "server-gone"]
"""It was told to stop, or the process that started it has ended."""


@dataclass(frozen=True)
class DoorServed:
    """How a door's process ended.

    Attributes:
        server: 0 or 1.
        name: the door's.
        ending: why it ended.
    """

    server: int
    name: str
    ending: Ending


async def run_door(
    config: Path, *, name: str = "", until_stdin_ends: bool = False, stop_seconds: float = STOP_SECONDS
) -> DoorServed:
    """Run a door until it is told to stop.

    Args:
        config: the server's file.
        name: the door's name, one of a kind among those of the server; empty: the host's name.
        until_stdin_ends: whether the door ends at once when its stdin does: it is another process's child.
        stop_seconds: that what is under way has to end after SIGTERM.

    Raises:
        MisuseError: a file is missing or wrong, the server has no doors, or its core refuses this one for good.
        StorageError: the blobs cannot be used.
        UnreachableError: the clients' address cannot be listened at.
    """
    forbid_core_dumps()
    keep_freed_memory()
    name = checked_name(name or socket.gethostname()[:LONGEST_NAME])
    file = HostFile.load(config)
    common = file.common
    deployment = Deployment.load(common.task)
    if not common.doors:
        raise MisuseError(
            f'{config} has no [doors]: clients connect to the server itself; add the table, with core = "unix:…" and '
            'keys = "s0-doors.key"'
        )
    log = Log(f"S{common.server}", form=common.log.format, level=common.log.level, door=name)
    with log.installed(), late_hangups_ignored(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
        process = _Process(config, common, log, stop_seconds)
        with collecting_seldom():
            return await process.run(name, deployment, signals, until_stdin_ends=until_stdin_ends)


def checked_name(name: str) -> str:
    """Return a door's name, if it can be one.

    Raises:
        MisuseError: it is too long, or has something else than letters, digits, dots, dashes and underlines.
    """
    if (
        len(name) <= LONGEST_NAME
        and name.isascii()
        and name.replace("-", "").replace(".", "").replace("_", "").isalnum()
    ):
        return name
    raise MisuseError(
        f"--name {name[:LONGEST_NAME]!r}: a door is called by up to {LONGEST_NAME} letters, digits, dots, dashes and "
        "underlines, such as front-a"
    )


class _Process:
    """The life of a door's process."""

    def __init__(self, config: Path, file: ServerFile, log: Log, stop_seconds: float) -> None:
        self._config = config
        self._file = file
        self._log = log
        self._stop_seconds = stop_seconds
        self._ending: Ending = "stopped"
        self._stopping = False

    async def run(
        self, name: str, deployment: Deployment, signals: AsyncIterator[int], *, until_stdin_ends: bool
    ) -> DoorServed:
        """Open the blobs, reach the core, listen, and serve until the end."""
        async with trio.open_nursery() as nursery:
            if until_stdin_ends:
                nursery.start_soon(self._watch_stdin, nursery.cancel_scope)
            check_door_blobs(self._file)
            blobs = await open_blobs(self._file, deployment, create=False)
            try:
                door = Door(self._setup(name, deployment, blobs))
                nursery.start_soon(self._obey, signals, door, nursery)
                address = await nursery.start(door.run)
                _log.info("%s of S%d listens at %s", name, self._file.server, address)
                tell_supervisor("READY=1")
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await blobs.aclose()
        return DoorServed(self._file.server, name, self._ending)

    def _setup(self, name: str, deployment: Deployment, blobs: Blobs) -> DoorSetup:
        file = self._file
        keys = own_channel_keys(file, deployment)
        return DoorSetup(
            task=deployment.task,
            index=file.server,
            name=name,
            channel_secret=keys.secret,
            channel=keys.public,
            peer=deployment.identity(1 - file.server).channel,
            peer_address=deployment.addresses[1 - file.server],
            address=file.listen,
            transport=SocketTransport(Port.SHARED),
            core_address=file.doors.core,
            core_transport=SocketTransport(),
            blobs=blobs,
            lane=KernelFreeLane(file.threads or None),
            randomness=os.urandom,
            kind=Kind.LIVE,
            release=importlib.metadata.version("fsl-async"),
            host=socket.gethostname()[:LONGEST_NAME],
            process=os.getpid(),
            limits=limits_of(file.limits),
            conversations=conversation_limits(file.limits),
            observe=EventLog(f"S{file.server}", task=deployment.task.name).hear,
        )

    async def _watch_stdin(self, scope: trio.CancelScope) -> None:
        """End at once when the process at the other end of stdin has ended."""
        try:
            await until_ended(sys.stdin.fileno())
        except OSError as error:
            raise MisuseError(f"--until-stdin-ends: stdin is no pipe ({error.strerror})") from error
        _log.info("the server that started this door has ended, and so does the door")
        self._ending = "server-gone"
        scope.cancel()

    async def _obey(self, signals: AsyncIterator[int], door: Door, nursery: trio.Nursery) -> None:
        async for number in signals:
            match number:
                case signal.SIGHUP:
                    self._reload()
                case _ if self._stopping:
                    raise KeyboardInterrupt
                case _:
                    self._stopping = True
                    tell_supervisor("STOPPING=1")
                    _log.info(
                        "asked to stop: what is under way has %g s to end; a second SIGTERM ends at once",
                        self._stop_seconds,
                    )
                    nursery.start_soon(self._stop, door, nursery.cancel_scope)

    async def _stop(self, door: Door, scope: trio.CancelScope) -> None:
        await door.wind_up(self._stop_seconds)
        _log.info("stopped")
        scope.cancel()

    def _reload(self) -> None:
        """Read the log level again; everything else takes effect when the door is started again."""
        try:
            level = HostFile.load(self._config).common.log.level
        except MisuseError as error:
            _log.warning("%s; what was read at the start stays in force", error)
            return
        self._log.set_level(level)
        _log.info("%s has been read again: log.level is %s", self._config, level)


async def until_ended(descriptor: int) -> None:
    """Wait until nobody writes to a pipe any more; what is written is thrown away.

    Raises:
        OSError: it is no pipe.
    """
    while True:
        await trio.lowlevel.wait_readable(descriptor)
        if not os.read(descriptor, 4_096):
            return
