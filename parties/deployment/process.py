"""A server in a process of its own: what `fsl-async serve` runs.

    SIGTERM   let the running rounds end, or park them after a while; a second SIGTERM ends at once
    SIGINT    end at once
    SIGHUP    read the lists of clients, the tokens, the log level and the tables of tasks again

Rules: no connection is accepted before a store is open; the supervisor is told that the server is ready once clients
can connect. What a process does with its tasks is in `parties.deployment.host`.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import trio

from fsl_async import kernels
from parties.compiling import Rehearsal, rehearsed, watched
from parties.deployment.host import ServerProcess
from parties.deployment.leaf_rate import INSTALL, UNCOMPILED, measured_leaves
from parties.deployment.operator_port import token_path
from parties.deployment.process_memory import collecting_seldom, give_back_code, keep_freed_memory
from parties.operator import Log, serve_operator
from parties.settings.host_file import HostFile
from parties.status import HostedTaskStatus, ServerStatus
from transport import Transport

_log = logging.getLogger("parties.serving")

LOOK_SECONDS = 0.5
"""Between two looks whether kernels are compiled."""

Ending: TypeAlias = Literal["rounds-over", "stopped"]
"""The last round of its configuration is over, or it was told to stop."""


@dataclass(frozen=True)
class ServedTask:
    """How a task of a server's process ended.

    Attributes:
        status: of its server when it ended.
        standing: where the task was then.
        doing: what its server was doing, for people.
    """

    status: ServerStatus
    standing: HostedTaskStatus
    doing: str


@dataclass(frozen=True)
class Served:
    """How a server's process ended.

    Attributes:
        server: 0 or 1.
        ending: why it ended.
        tasks: its tasks, by name.
        listed: whether its file has tables [[tasks]].
    """

    server: int
    ending: Ending
    tasks: dict[str, ServedTask]
    listed: bool


async def serve(config: Path, *, stop_seconds: float | None = None, transport: Transport | None = None) -> Served:
    """Run a server until its last round is over or it is told to stop.

    Args:
        config: the server's file.
        stop_seconds: seconds that a running round has to end after SIGTERM; by default rounds.wind_up of the file.
        transport: what connects the server with the others; left out, what its file says.

    Raises:
        MisuseError: a file is missing or wrong.
        StorageError: the store or the folder of checkpoints cannot be used.
        UnreachableError: one of the two ports cannot be listened at.
        PeerViolationError: the other server broke the protocol.
    """
    forbid_core_dumps()
    keep_freed_memory()
    file = HostFile.load(config)
    common = file.common
    log = Log(f"S{common.server}", form=common.log.format, level=common.log.level, names=common.log.names)
    with (
        log.installed(),
        late_hangups_ignored(),
        trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP, signal.SIGINT) as signals,
        rehearsed(lambda: [deployment.task for _, deployment in file.deployments()]) as rehearsal,
        collecting_seldom(),
    ):
        if rehearsal is None:
            await trio.to_thread.run_sync(load_kernels)
        async with trio.open_nursery() as nursery:
            if rehearsal is not None:
                nursery.start_soon(_change_over, rehearsal)
            host = ServerProcess(file, log, stop_seconds, nursery, transport)
            nursery.start_soon(_obey, signals, host, nursery)
            await host.run(partial(_open, host, file, nursery))
            nursery.cancel_scope.cancel()
    ending: Ending = "stopped" if host.stopping.is_set() else "rounds-over"
    tasks = {task.name: ServedTask(task.status(), task.standing(), task.doing) for task in host.tasks()}
    return Served(common.server, ending, tasks, file.listed)


async def _change_over(rehearsal: Rehearsal) -> None:
    """Compute with kernels once they are on disk, or say why this server goes on without."""
    while not rehearsal.is_over:  # noqa: ASYNC110 - it is looked at, also by who has no loop
        await trio.sleep(LOOK_SECONDS)
    if why := await trio.to_thread.run_sync(rehearsal.change_lanes):
        _log.warning("kernels are not used, and rounds take ten times as long and more; start again to retry: %s", why)
        return
    await trio.to_thread.run_sync(load_kernels)
    _log.info("kernels are compiled, and compute from now on: %s", kernels.active_isa())


async def _open(host: ServerProcess, file: HostFile, nursery: trio.Nursery) -> None:
    """Open the operator's port, and tell the supervisor."""
    if file.common.operator.listen:
        serving = partial(serve_operator, host, file.common.operator.listen, token_path(file))
        _log.info("the operator's page is at http://%s/", await nursery.start(serving))
    tell_supervisor("READY=1")


async def _obey(signals: AsyncIterator[int], host: ServerProcess, nursery: trio.Nursery) -> None:
    async for number in signals:
        match number:
            case signal.SIGHUP:
                host.reload()
            case _ if number == signal.SIGINT or host.stopping.is_set():
                raise KeyboardInterrupt  # from here, for one that Python raises within the log's lock is lost with it
            case _:
                host.stopping.set()
                tell_supervisor("STOPPING=1")
                _log.info(
                    "asked to stop: the running round has %g s to end; a second SIGTERM ends at once",
                    host.longest_wind_up,
                )
                nursery.start_soon(host.stop)


def load_kernels() -> None:
    """Load the kernels, which are tested before use, and give back the compiler's code, which rounds do not need."""
    watched(kernels.active_isa)
    if kernels.compiles():
        give_back_code()
    else:
        rate = measured_leaves() / 1e6
        _log.info("%s: %.1f million leaves a second of a core; %s", UNCOMPILED, rate, INSTALL)


def tell_supervisor(state: str) -> None:
    """Send the supervisor lines such as READY=1; where it does not listen, that is only logged.

    The protocol is sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names. Without it nothing happens.
    """
    name = os.environ.get("NOTIFY_SOCKET", "")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
            connection.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("the supervisor at NOTIFY_SOCKET cannot be told %r: %s", state, error)


def forbid_core_dumps() -> None:
    """Forbid core dumps, which would hold seeds and shares."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def late_hangups_ignored() -> Iterator[None]:
    """Ignore a SIGHUP that comes while the process ends: trio raises what nobody took again, and dies."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
