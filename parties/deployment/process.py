"""A server in a process of its own: what `fsl-async serve` runs.

    SIGTERM   let the running round end, or park it after a while; a second SIGTERM ends at once
    SIGINT    end at once
    SIGHUP    read the list of clients, the tokens and the log level again

Rules: no connection is accepted before the store is open; the supervisor is told that the server is ready once clients
can connect; a model file that cannot be written is reported and does not stop the server, because the store has the
model; however the server ends, its store is closed.
"""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import trio

from fsl_async import kernels
from fsl_async.errors import FslError, MisuseError, StorageError
from parties.deployment.operator_port import token_path
from parties.deployment.process_memory import give_back_code, keep_freed_memory
from parties.deployment.server import server_setup
from parties.deployment.supervisor import forbid_core_dumps, tell_supervisor
from parties.deployment.watched_files import WatchedFile, watched_clients, watched_tokens
from parties.events import Observer, Warned
from parties.files.disk import check_room
from parties.files.models import ModelForm, checkpoint, save_model
from parties.operator import Log, ObserverSetup, OneTask, OperatorObserver, serve_operator
from parties.operator.log import level_number
from parties.server.admission import Enrolment
from parties.server.round.run import RoundRun
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.settings.party_file import ServerFile
from parties.settings.reading import InMemory, OnDisk, settings
from parties.status import ServerStatus
from parties.storage.store import Store
from transport import Transport

__all__ = ["Served", "serve"]

_log = logging.getLogger("parties.serving")

CLOSING_PATIENCE = 10.0

RELOADED = ("log.level",)
"""The settings that take effect on SIGHUP; the others take effect at the next start."""


Ending: TypeAlias = Literal["rounds-over", "stopped"]
"""The last round of its configuration is over, or it was told to stop."""


@dataclass(frozen=True)
class Served:
    """How a server's process ended.

    Attributes:
        status: of the server when it ended.
        ending: why it ended.
        state: what the server was doing, for people.
    """

    status: ServerStatus
    ending: Ending
    state: str


async def serve(config: Path, *, stop_seconds: float | None = None, transport: Transport | None = None) -> Served:
    """Run a server until its last round is over or it is told to stop.

    Args:
        config: the server's file.
        stop_seconds: seconds that the running round has to end after SIGTERM; by default rounds.wind_up of the file.
        transport: what connects the server with the others; left out, what its file says.

    Raises:
        MisuseError: a file is missing or wrong.
        StorageError: the store or the folder of checkpoints cannot be used.
        UnreachableError: one of the two ports cannot be listened at.
        PeerViolationError: the other server broke the protocol.
    """
    forbid_core_dumps()
    keep_freed_memory()
    file = ServerFile.load(config)
    log = Log(f"S{file.server}", form=file.log.format, level=file.log.level)
    wind_up = file.rounds.wind_up if stop_seconds is None else stop_seconds
    with log.installed(), _late_hangups_ignored(), trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
        await trio.to_thread.run_sync(_load_kernels)
        setup = await _unless_stopped(signals, partial(server_setup, config, file=file, transport=transport))
        observer = OperatorObserver(ObserverSetup(file.server, setup.task.name, log, partial(_store_problem, file)))
        try:
            server = Server(replace(setup, observe=observer))
            return await _Runner(config, file, server, observer, wind_up).run(signals)
        finally:
            await _close(setup.store)


@contextmanager
def _late_hangups_ignored() -> Iterator[None]:
    """Ignore a SIGHUP that comes while the server ends: trio raises it again if nobody took it, which would kill us."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


async def _unless_stopped(signals: AsyncIterator[int], set_up: Callable[[], Awaitable[ServerSetup]]) -> ServerSetup:
    """Set a server up; SIGTERM interrupts this, because it may have to wait for room on its disk.

    Raises:
        KeyboardInterrupt: SIGTERM came.
    """
    async with trio.open_nursery() as nursery:

        async def obey() -> None:
            async for number in signals:
                if number == signal.SIGTERM:
                    raise KeyboardInterrupt

        nursery.start_soon(obey)
        setup = await set_up()
        nursery.cancel_scope.cancel()
    return setup


class _Runner:
    """A server and what else its process does: signals, model files, files that are read again."""

    def __init__(
        self, config: Path, file: ServerFile, server: Server, observer: OperatorObserver, wind_up: float
    ) -> None:
        self._config = config
        self._file = file
        self._server = server
        self._observer = observer
        self._wind_up = wind_up
        self._watched = list(_watched(file, server.enrolment, observer))
        self._stopping = trio.Event()
        self._kept = 0

    async def run(self, signals: AsyncIterator[int]) -> Served:
        """Run until the rounds are over, or a signal says otherwise."""
        self._warn_of_memory()
        if self._file.checkpoints:
            _make_folder(self._file.checkpoints)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._obey, signals, nursery)
            await self._open(nursery)
            await self._keep_model()
            async for _ in self._server.settlements():
                _tidy()
                await self._keep_model()
            await self._server.drain(self._file.drain_seconds)
            nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await self._keep_model()
        ending: Ending = "stopped" if self._stopping.is_set() else "rounds-over"
        return Served(self._server.status(), ending, self._server.state_name())

    async def _open(self, nursery: trio.Nursery) -> None:
        address = await nursery.start(self._server.run)
        _log.info("S%d listens at %s", self._file.server, address)
        if self._file.operator.listen:
            token = token_path(self._file)
            serving = partial(serve_operator, OneTask(self._observer, self._server), self._file.operator.listen, token)
            _log.info("the operator's page is at http://%s/", await nursery.start(serving))
        for watched in self._watched:
            nursery.start_soon(watched.keep)
        tell_supervisor("READY=1")

    # ---- signals

    async def _obey(self, signals: AsyncIterator[int], nursery: trio.Nursery) -> None:
        async for number in signals:
            match number:
                case signal.SIGHUP:
                    self._reload()
                case _ if self._stopping.is_set():
                    raise KeyboardInterrupt
                case _:
                    self._stopping.set()
                    nursery.start_soon(self._stop, nursery)

    async def _stop(self, nursery: trio.Nursery) -> None:
        tell_supervisor("STOPPING=1")
        _log.info("asked to stop: the running round has %g s to end; a second SIGTERM ends at once", self._wind_up)
        run = self._server.running
        await self._server.wind_up(self._wind_up)
        _log.info("stopped: %s", "no round is open" if run is None else _left(run))
        nursery.cancel_scope.cancel()

    def _reload(self) -> None:
        for watched in self._watched:
            watched.call()
        try:
            file = ServerFile.load(self._config)
        except MisuseError as error:
            self._warn("configuration", f"{error}; what was read at the start stays in force")
            return
        self._log_from(file.log.level)
        later = [found for found in _changed(self._file, file) if found not in RELOADED]
        if later:
            self._warn("configuration", f"changes of {', '.join(later)} take effect when the server is started again")

    def _log_from(self, level: str) -> None:
        """Change the level of the log; the change is logged at the more verbose of both levels."""
        log = self._observer.setup.log
        before = log.level
        log.set_level(min(before, level, key=level_number))
        now = f"log.level is {level} now, and was {before}" if level != before else f"log.level is {level} as before"
        _log.info("%s has been read again: %s", self._config, now)
        log.set_level(level)

    # ---- models

    async def _keep_model(self) -> None:
        """Write the model files, if a round has been done since they were written."""
        status = self._server.status()
        if status.rounds_done <= self._kept:
            return
        try:
            await trio.to_thread.run_sync(self._write_model, status.rounds_done + status.rounds_aborted)
            self._kept = status.rounds_done
        except FslError as error:
            self._warn("model", f"{error}; the store has the model, the file is written after the next round")

    def _write_model(self, number: int) -> None:
        file, model = self._file, self._server.model
        if file.save_model:
            save_model(file.save_model, model)
        if file.checkpoints:
            form = ModelForm[file.checkpoint_format.upper()]
            checkpoint(file.checkpoints, number, model, form, keep=file.checkpoints_kept)

    # ---- warnings

    def _warn_of_memory(self) -> None:
        if isinstance(self._file.store, InMemory):
            self._warn(
                "store",
                "THE STORE IS IN MEMORY: a server that is killed loses every submission that it has acknowledged, and "
                'its model; for anything but a trial set store = "FILE"',
            )

    def _warn(self, about: str, explanation: str) -> None:
        self._observer(Warned(about=about, explanation=explanation))


def _watched(file: ServerFile, enrolment: Enrolment, observe: Observer) -> Iterator[WatchedFile]:
    """The files that are read again while the server runs."""
    if file.clients:
        yield watched_clients(file.clients, enrolment, observe)
    if file.tokens:
        yield watched_tokens(file.tokens, file.server, enrolment, observe)


def _load_kernels() -> None:
    """Load the kernels, which are tested before use, and give back the compiler's code, which rounds do not need."""
    kernels.active_isa()
    gc.freeze()  # so that each later collection takes only milliseconds
    give_back_code()


def _tidy() -> None:
    """Free what a settled round has left: arrays in objects that refer to each other, and code."""
    gc.collect()
    give_back_code()


async def _store_problem(file: ServerFile) -> str:
    """Why the store cannot be written; empty where it can."""
    if isinstance(file.store, OnDisk):
        try:
            check_room(file.store.path, 0)
        except StorageError as error:
            return str(error)
    return ""


async def _close(store: Store) -> None:
    with trio.move_on_after(CLOSING_PATIENCE, shield=True):
        await store.aclose()


def _left(run: RoundRun) -> str:
    """What becomes of a round when its server stops, for the log."""
    number, state = run.config.number, type(run.state).__name__
    if run.settled.is_set():
        report = run.report()
        words = {"aborted": "was aborted: ", "refused": "has ended, and its sum was refused: ", "done": "is done"}
        return f"round {number} {words[report.ended]}{report.explanation}"
    return (
        f"round {number} is parked, {state} with {run.status().submissions} submissions; it resumes when the server "
        "is started again with the same store"
    )


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path}, the folder of checkpoints, cannot be made: {error.strerror}") from error


def _changed(old: ServerFile, new: ServerFile) -> list[str]:
    """The keys of the settings in which two files differ."""
    keys = []
    for found in settings(ServerFile):
        tables = [getattr(file, found.section) if found.section else file for file in (old, new)]
        if getattr(tables[0], found.name) != getattr(tables[1], found.name):
            keys.append(found.key)
    return keys
