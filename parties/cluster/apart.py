"""A cluster that a process of its own talks to, so that nothing of the cluster's runs in the server's.

    server ──stdin──> python -m parties.cluster.dask_apart ──TLS──> scheduler and workers
           <─stdout──

What the process says is believed as little as what a worker says: it is decoded as bytes, and whoever uses the cluster
checks it. The process is new whenever the cluster was away, and never outlives this one.
"""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import trio

from fsl_async.errors import MisuseError
from parties.cluster.cluster import Cluster, ClusterAwayError, Members, Reply, WorkerLostError
from parties.cluster.frames import (
    TOLD,
    Answered,
    Asked,
    Away,
    Begin,
    Begun,
    Call,
    Failed,
    GiveUp,
    Here,
    ReceiveExactly,
    Refused,
    array_of,
    framed,
    read,
    receiving,
)

_log = logging.getLogger("parties.cluster")

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH")
"""Variables of this process that the other one gets: others may hold credentials."""

LEAVING_SECONDS = 3.0

LONGEST_LINE = 1_000
"""Bytes of a line of the other process's stderr that go into this one's log."""


@dataclass(eq=False)
class _Waiting:
    ended: trio.Event = field(default_factory=trio.Event)
    reply: Reply | WorkerLostError = field(default_factory=lambda: WorkerLostError("the cluster is away"))


class DaskApart(Cluster):
    """The workers of one Dask scheduler that belong to one task of this server.

    Args:
        where: the scheduler's address, tls://host:port, or tcp:// on this host.
        certificates: the files of the authority, the certificate and its key; None with tcp.
        belongs: how the names of this task's workers begin.
        closed: files that the other process must not be able to read: it is asked, and where it can, that is told.
    """

    kind = "dask"

    def __init__(
        self, where: str, certificates: tuple[Path, Path, Path] | None, belongs: str, closed: tuple[Path, ...]
    ) -> None:
        self.where = where
        files = None if certificates is None else tuple(str(path.absolute()) for path in certificates)
        self._begin = Begin(where, belongs, files, tuple(str(path.absolute()) for path in closed))  # type: ignore[arg-type]
        self._numbers = count(1)
        self._waiting: dict[int, _Waiting] = {}
        self._say: trio.MemorySendChannel[Asked] | None = None

    async def stay_connected(self, changed: Callable[[Members], None]) -> None:
        """See `Cluster.stay_connected`."""
        with tempfile.TemporaryDirectory(prefix="fsl-async-dask-") as folder:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-P", "-m", "parties.cluster.dask_apart"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(folder),
                start_new_session=True,
            )
            try:
                await self._converse(process, changed)
            finally:
                self._say = None
                for waiting in self._waiting.values():
                    waiting.ended.set()
                with trio.CancelScope(shield=True):
                    await _end(process)

    async def call(self, worker: str, action: str, order: bytes) -> Reply:
        """See `Cluster.call`."""
        number, waiting, say = next(self._numbers), _Waiting(), self._say
        if say is None:
            raise WorkerLostError("the cluster is away")
        self._waiting[number] = waiting
        try:
            say.send_nowait(Call(number, worker, action, order))
            await waiting.ended.wait()
        finally:
            del self._waiting[number]
            if not waiting.ended.is_set():
                say.send_nowait(GiveUp(number))
        if isinstance(waiting.reply, WorkerLostError):
            raise waiting.reply
        return waiting.reply

    async def _converse(self, process: trio.Process, changed: Callable[[Members], None]) -> None:
        to, answers, words = process.stdin, process.stdout, process.stderr
        if to is None or answers is None or words is None:
            raise ClusterAwayError("the process that talks to Dask has no pipes")
        self._say, to_send = trio.open_memory_channel[Asked](math.inf)
        self._say.send_nowait(self._begin)
        failed: list[Exception] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send, to, to_send)
            nursery.start_soon(_log_lines, words)
            try:
                await self._hear(receiving(answers), changed)
            except EOFError:
                failed.append(ClusterAwayError("the process that talks to Dask has ended"))
            except (ClusterAwayError, MisuseError) as error:
                failed.append(error)
            nursery.cancel_scope.cancel()
        raise failed[0]

    async def _hear(self, receive: ReceiveExactly, changed: Callable[[Members], None]) -> None:
        while True:
            try:
                told = await read(receive, TOLD)
                arrays = [await array_of(receive, form) for form in told.arrays] if isinstance(told, Answered) else []
            except MisuseError as error:
                raise ClusterAwayError(
                    f"the process that talks to Dask says what is not understood: {error}"
                ) from error
            match told:
                case Begun(readable=readable) if readable:
                    _log.warning(
                        "the process that talks to Dask can read %s: this kernel has no Landlock, or does not allow it "
                        "here; whoever has a certificate of the cluster can read the server's secrets",
                        ", ".join(readable),
                    )
                case Here(members=members):
                    changed(members)
                case Away(why=why):
                    raise ClusterAwayError(why)
                case Refused(why=why):
                    raise MisuseError(why)
                case Answered(number=number, report=report):
                    self._end_call(number, Reply(report, arrays))
                case Failed(number=number, why=why):
                    self._end_call(number, WorkerLostError(why))

    def _end_call(self, number: int, reply: Reply | WorkerLostError) -> None:
        if number in self._waiting:
            self._waiting[number].reply = reply
            self._waiting[number].ended.set()


def _environment(folder: str) -> dict[str, str]:
    """What the other process finds in its environment: the same code, and nothing that may hold credentials."""
    kept = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return kept | {
        "TMPDIR": folder,
        "HOME": folder,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


async def _send(pipe: trio.abc.SendStream, messages: trio.MemoryReceiveChannel[Asked]) -> None:
    async for message in messages:
        try:
            await pipe.send_all(framed(message))
        except trio.BrokenResourceError:
            return  # the process has ended, which its stdout says as well


async def _log_lines(pipe: trio.abc.ReceiveStream) -> None:
    """Say in the log what the other process says: one that is misled must not write lines of the audit."""
    held = b""
    async for piece in pipe:
        *lines, held = (held + piece).split(b"\n")
        for line in lines:
            _log.warning("the process that talks to Dask says: %s", line[:LONGEST_LINE].decode(errors="replace"))
        held = held[:LONGEST_LINE]


async def _end(process: trio.Process) -> None:
    """End a process by hanging up, so that it leaves its scheduler as it should; one that takes long is killed."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            await pipe.aclose()
    with trio.move_on_after(LEAVING_SECONDS):
        await process.wait()
    if process.poll() is None:
        process.kill()
        await process.wait()
