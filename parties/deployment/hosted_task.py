"""One task of a server's process: started, drained, ended, and started again, whatever becomes of the others.

    Starting ──> Running ──> Draining ──> Ended("drained") ──> Starting …
        │           ├──────────────────> Ended("over")
        └───────────┴──────────────────> Failed

Rules: an error of the task ends the task and goes no further; a bug of ours ends the process. However a task ends, its
store is closed, its connections end, and its clients are told to come back. A model file that cannot be written is
reported and does not stop the task, because the store has the model. A task that has ended has written its last model.
"""

from __future__ import annotations

import gc
import importlib.metadata
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, assert_never

import msgspec
import trio

from fsl_async import kernels
from fsl_async.errors import FslError, MisuseError, StorageError, leaves
from fsl_async.foreign_text import printable
from parties.compute import ComputeLane
from parties.concurrency import RecurringEvent
from parties.deployment.leaf_rate import measured_leaves, too_large
from parties.deployment.process_memory import give_back_code, room_for_parts
from parties.deployment.round_files import prepare_files, write_files
from parties.deployment.server import server_setup
from parties.deployment.watched_files import WatchedFile, watched_clients, watched_tokens
from parties.events import Observer, Warned
from parties.files.disk import check_room
from parties.operator import Log, ObserverSetup, OperatorObserver, Place
from parties.operator.log import about_task
from parties.server.admission import Enrolment
from parties.server.round.run import RoundRun
from parties.server.server import Server
from parties.server.setup import ServerSetup
from parties.server.storage import HELD_BYTES
from parties.server.task_router import TaskRouter
from parties.settings.party_file import ServerFile
from parties.settings.reading import InMemory, OnDisk
from parties.settings.task_file import Deployment
from parties.status import Fingerprints, HostedTaskStatus, PastRound, ServerStatus, TaskState
from transport import Transport

_log = logging.getLogger("parties.serving")

CLOSING_PATIENCE = 10.0


@dataclass(frozen=True)
class Starting:
    """Its files are read and its store is opened."""


@dataclass(frozen=True)
class Running:
    """Clients are served."""

    server: Server


@dataclass(frozen=True)
class Draining:
    """It has been told to end; its running round has some time left.

    Attributes:
        server: serves it.
        scope: ends this life of the task, and no later one.
    """

    server: Server
    scope: trio.CancelScope


@dataclass(frozen=True)
class Ended:
    """It has ended as it should: drained by its operator, or its last round is over."""

    how: Literal["drained", "over"]


@dataclass(frozen=True)
class Failed:
    """An error has ended it."""

    error: FslError


Stage: TypeAlias = Starting | Running | Draining | Ended | Failed


class HostedTask:
    """A task of this process, and its server while it has one; the operator's port sees it as `OperatedTask`.

    Args:
        config: the server's file.
        file: this task's settings.
        deployment: its task file.
        log: the log of this process.
        process: observes what concerns the process; None: this task's observer does.
        lane: where it computes.
        moved: is set whenever `stage` changes.
        transport: what connects its server with the others.

    Attributes:
        file: its settings, as they were when it was started last.
        deployment: its task file, likewise.
        observer: hears what happens to it, over all its starts.
        stage: where it is.
        doing: what its server was doing when it ended last, for people.
    """

    def __init__(
        self,
        config: Path,
        file: ServerFile,
        deployment: Deployment,
        log: Log,
        process: OperatorObserver | None,
        lane: ComputeLane,
        moved: RecurringEvent,
        transport: Transport,
    ) -> None:
        self.file = file
        self.deployment = deployment
        self.observer = OperatorObserver(
            ObserverSetup(
                file.server,
                deployment.task.name,
                log,
                self._store_problem,
                places=_places(deployment),
                release=importlib.metadata.version("fsl-async"),
            ),
            process,
        )
        self.stage: Stage = Starting()
        self.doing = ""
        self._moved = moved
        self._config = config
        self._is_alone = process is None
        self._lane = lane
        self._transport = transport
        self._scope = trio.CancelScope()
        self._watched: list[WatchedFile] = []
        self._kept = 0
        self._last = ServerStatus.away(f"S{file.server}", deployment.task.name, _fingerprints(deployment))

    @property
    def name(self) -> str:
        """The task's name."""
        return self.deployment.task.name

    @property
    def digest(self) -> bytes:
        """The task's digest."""
        return self.deployment.task.digest()

    # ---- its life

    def take(self, file: ServerFile, deployment: Deployment) -> None:
        """Take other settings, with which it starts next."""
        self.file, self.deployment = file, deployment
        self._last = msgspec.structs.replace(self._last, fingerprints=_fingerprints(deployment))

    def begin(self) -> None:
        """Be about to start; `run` follows."""
        self._scope = trio.CancelScope()
        self._enter(Starting())

    async def run(self, router: TaskRouter) -> None:
        """Serve until its last round is over, it is drained, or an error ends it."""
        with about_task(self.name):
            router.is_away(self.digest, f"task {self.name!r} is starting")
            scope = self._scope
            try:
                with scope:
                    await self._run(router)
            except* FslError as errors:
                self._enter(Failed(leaves(errors)[0]))
            else:
                told = scope.cancel_called or isinstance(self.stage, Draining)
                self._enter(Ended("drained" if told else "over"))
            router.is_away(self.digest, f"task {self.name!r} is not served at present")

    async def _run(self, router: TaskRouter) -> None:
        setup = await server_setup(self._config, file=self.file, lane=self._lane, transport=self._transport)
        try:
            held = room_for_parts() if self._is_alone else HELD_BYTES
            server = Server(replace(setup, observe=self.observer, recent=held, loans=held))
            await self._serve(server, router)
        finally:
            await _close(setup)

    async def _serve(self, server: Server, router: TaskRouter) -> None:
        self._kept = 0
        self._watched = list(_watched(self.file, server.setup.task.digest(), server.enrolment, self.observer))
        if isinstance(self.file.store, InMemory):
            self.warn(
                "store",
                "THE STORE IS IN MEMORY: a server that is killed loses every submission that it has acknowledged, and "
                'its model; for anything but a trial set store = "FILE"',
            )
        task = server.setup.task
        if kernels.isa_names() == ("plain",) and (warning := too_large(task, measured_leaves(task.verified))):
            self.warn("compiler", warning)
        prepare_files(self.file, server.setup.task)
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(server.run_behind, router)
                self._enter(Running(server))
                for watched in self._watched:
                    nursery.start_soon(watched.keep)
                await self._keep_model(server)
                async with aclosing(server.settlements()) as settlements:
                    async for _ in settlements:
                        _tidy()
                        await self._keep_model(server)
                await server.drain(self.file.drain_seconds)
                nursery.cancel_scope.cancel()
        finally:
            if not isinstance(self.stage, Starting):  # the last round may have ended with the task
                with trio.CancelScope(shield=True):
                    await self._keep_model(server)
            self.doing = server.state_name()
            self._last = msgspec.structs.replace(
                server.status(), round=None, stage="away", peer_connected=False, clients_connected=0, clients_known=0
            )

    async def stop(self, seconds: float) -> None:
        """Let the running round end within so many seconds, or park it; then end."""
        draining = self.begin_to_drain()
        if draining is not None:
            await self.drain(draining, seconds)

    def begin_to_drain(self) -> Draining | None:
        """Be about to end; what `drain` takes, if there is a server to be drained."""
        match self.stage:
            case Running(server=server):
                draining = Draining(server, self._scope)
                self._enter(draining)
                return draining
            case Starting():
                self._scope.cancel()
        return None

    async def drain(self, draining: Draining, seconds: float) -> None:
        """End within so many seconds, after `begin_to_drain`; the task may have ended since, and been started again."""
        with about_task(self.name):
            run = draining.server.running
            await draining.server.wind_up(seconds)
            _log.info("stopped: %s", "no round is open" if run is None else _left(run))
        draining.scope.cancel()

    def reload(self) -> None:
        """Read the list of clients and the tokens again."""
        for watched in self._watched:
            watched.call()

    def warn(self, about: str, explanation: str) -> None:
        """Tell its operator."""
        self.observer(Warned(about=about, explanation=explanation))

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        self._moved.set()

    # ---- what the operator's port sees

    def standing(self) -> HostedTaskStatus:
        """See `OperatedTask`."""
        where = str(self.file.store.path) if isinstance(self.file.store, OnDisk) else "memory"
        state, explanation = self._state()
        return HostedTaskStatus(state=state, digest=self.digest.hex(), store=where, explanation=explanation)

    def _state(self) -> tuple[TaskState, str]:
        match self.stage:
            case Starting():
                return "starting", ""
            case Running():
                return "running", ""
            case Draining():
                return "draining", ""
            case Ended(how=how):
                return how, ""
            case Failed(error=error):
                return "failed", str(error)
            case _:
                assert_never(self.stage)

    def status(self) -> ServerStatus:
        """See `OperatedTask`; of a task that has no server now, as its last one left it."""
        if self._serving is not None:
            return self._serving.status()
        state, explanation = self._state()
        return msgspec.structs.replace(self._last, waiting_for=": ".join(filter(None, (state, explanation))))

    def known_clients(self) -> Sequence[str]:
        """See `OperatedTask`; nobody while the task has no server."""
        return () if self._serving is None else self._serving.known_clients()

    def submitted_clients(self) -> frozenset[str]:
        """See `OperatedTask`."""
        return frozenset() if self._serving is None else self._serving.submitted_clients()

    def drawn_clients(self) -> frozenset[str] | None:
        """See `OperatedTask`."""
        return None if self._serving is None else self._serving.drawn_clients()

    async def past_rounds(self, most: int, before: int | None = None) -> list[PastRound]:
        """See `OperatedTask`."""
        return await self._server().past_rounds(most, before)

    async def abort_round(self, number: int, explanation: str) -> object:
        """See `OperatedTask`."""
        return await self._server().abort_round(number, explanation)

    async def close_now(self, number: int) -> int:
        """See `OperatedTask`."""
        return await self._server().close_now(number)

    def draw_round(self, number: int) -> int:
        """See `OperatedTask`."""
        return self._server().draw_round(number)

    @property
    def _serving(self) -> Server | None:
        return self.stage.server if isinstance(self.stage, Running | Draining) else None

    def _server(self) -> Server:
        if self._serving is None:
            raise MisuseError(f"task {self.name!r} is not served now: {self._state()[0]}")
        return self._serving

    async def _store_problem(self) -> str:
        """Why the store cannot be written; empty where it can."""
        if isinstance(self.file.store, OnDisk):
            try:
                check_room(self.file.store.path, 0)
                folder = self.file.blobs_folder
                if folder is not None:
                    check_room(folder, 0)
            except StorageError as error:
                return str(error)
        return ""

    # ---- models

    async def _keep_model(self, server: Server) -> None:
        """Write the model files, if a round has been done since they were written."""
        status = server.status()
        if status.rounds_done <= self._kept:
            return
        try:
            number = status.rounds_done + status.rounds_aborted
            await trio.to_thread.run_sync(write_files, self.file, server, number)
            self._kept = status.rounds_done
        except FslError as error:
            self.warn("model", f"{error}; the store has the model, the file is written after the next round")


def _places(deployment: Deployment) -> tuple[Place, Place]:
    """What the task file says of both servers for people."""
    first, second = (Place(printable(each.operator), printable(each.address)) for each in deployment.servers)
    return first, second


def _fingerprints(deployment: Deployment) -> Fingerprints:
    first, second = deployment.identities
    return Fingerprints.of(deployment.task.digest(), b"", (first.statement, second.statement))


def _watched(file: ServerFile, task: bytes, enrolment: Enrolment, observe: Observer) -> Iterator[WatchedFile]:
    """The files that are read again while the task is served."""
    if file.clients:
        yield watched_clients(file.clients, enrolment, observe)
    if file.tokens:
        yield watched_tokens(file.tokens, task, file.server, enrolment, observe)


def _tidy() -> None:
    """Free what a settled round has left: arrays in objects that refer to each other, and code."""
    gc.collect()
    give_back_code()


async def _close(setup: ServerSetup) -> None:
    with trio.move_on_after(CLOSING_PATIENCE, shield=True):
        await setup.store.aclose()
        await setup.bulk.aclose()


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
