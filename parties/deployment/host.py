"""The tasks of one server's process: which there are, started, drained and removed while others run.

    signals, operator's port ──> ServerProcess ──┬──> HostedTask "shop" ──┐
                                                 └──> HostedTask "town" ──┴──> one TaskRouter, one SharedThreads

Rules: a process ends when each of its tasks is over or has failed, or when it is told to stop; while a task is drained
by its operator, it waits. A task that fails ends alone; a process whose only task, at the top of its file, fails ends
with its error. What the file says is taken up at a task's start; a file that cannot be used changes nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import trio

from fsl_async.errors import FslError, MisuseError
from parties.compute import SharedThreads
from parties.concurrency import RecurringEvent
from parties.deployment.hosted_task import Ended, Failed, HostedTask, Running, Starting
from parties.deployment.server import own_identity
from parties.deployment.transports import chosen_transport
from parties.events import ConnectionFailed, Warned
from parties.operator import Log, ObserverSetup, OperatorObserver
from parties.operator.log import level_number
from parties.server.task_router import Listening, TaskRouter
from parties.settings.host_file import (
    CommonFile,
    HostFile,
    Pair,
    TaskTable,
    check_keys,
    check_number,
    check_together,
    places,
)
from parties.settings.party_file import ServerFile
from parties.settings.reading import settings
from parties.settings.task_file import Deployment
from transport import HandshakeSettings, Kind, Role, Transport

_log = logging.getLogger("parties.serving")

RELOADED = ("log.level",)
"""The settings that take effect on SIGHUP; the others take effect at the next start."""


class ServerProcess:
    """The tasks of one process; the operator's port sees it as `OperatedProcess`.

    Args:
        file: the server's file.
        log: the log of this process.
        stop_seconds: that a running round has to end when its task is drained; None: rounds.wind_up of its settings.
        nursery: where the tasks run.
        transport: what connects the server with the others; None: what its file says.

    Raises:
        MisuseError: a task file is missing or wrong, two tasks cannot be served together, or the keys are not those of
            the task files.

    Attributes:
        router: takes the connections of all tasks.
        stopping: set once the process has been told to stop.
    """

    def __init__(
        self,
        file: HostFile,
        log: Log,
        stop_seconds: float | None,
        nursery: trio.Nursery,
        transport: Transport | None = None,
    ) -> None:
        pairs = file.deployments()
        self._founding = pairs[0]
        common, deployment = self._founding
        self.stopping = trio.Event()
        self._transport = chosen_transport(transport, common.transport, common.web)
        self._file = file
        self._common = common
        self._stop_seconds = stop_seconds
        self._log = log
        self._threads = SharedThreads(common.threads or None)
        self._own = OperatorObserver(ObserverSetup(common.server, "", log)) if file.listed else None
        self._moved = RecurringEvent()
        self._hosted = {pair[1].task.name: self._made(pair) for pair in pairs}
        self._leaving: set[str] = set()
        self._nursery = nursery
        self.router = TaskRouter(
            _listening(common, deployment, self._transport, several=file.listed), self._tell_failure
        )

    # ---- its life

    async def run(self, opened: Callable[[], Awaitable[None]]) -> None:
        """Run all tasks until there is nothing left to do.

        Args:
            opened: called once clients can connect, and one of the tasks is served.

        Raises:
            FslError: the only task has failed; or of several at least one has, and none is left to serve.
        """
        for task in self._hosted.values():
            self._begin(task)
        await self._until(self._is_served)
        if not self._is_over():
            address = await self._nursery.start(self.router.listen)
            places = " and ".join([address, *getattr(self._transport, "also_bound", ())])
            _log.info("S%d listens at %s", self._common.server, places)
            await opened()
        await self._until(self._is_over)
        self._raise_failure()

    def _begin(self, task: HostedTask) -> None:
        task.begin()
        self._nursery.start_soon(self._run_task, task)

    async def _run_task(self, task: HostedTask) -> None:
        await task.run(self.router)
        if isinstance(task.stage, Failed) and self._file.listed:
            task.warn("task", f"task {task.name!r} has failed, and the others run on: {task.stage.error}")

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            await self._moved.wait()

    def _is_served(self) -> bool:
        """Whether one of the tasks is served, or none will be."""
        return any(isinstance(task.stage, Running) for task in self._hosted.values()) or self._is_over()

    def _is_over(self) -> bool:
        """Whether no task is served, nor will be unless the process is started again."""
        stages = [task.stage for task in self._hosted.values()]
        return all(
            isinstance(stage, Failed) or (isinstance(stage, Ended) and (stage.how == "over" or self.stopping.is_set()))
            for stage in stages
        )

    def _raise_failure(self) -> None:
        """Raise what has ended a task, unless the process was told to stop and so ends as it should."""
        if self._file.listed and self.stopping.is_set():
            return
        for task in self._hosted.values():
            if isinstance(task.stage, Failed):
                raise task.stage.error

    async def stop(self) -> None:
        """Drain all tasks; then the process ends.

        Raises:
            KeyboardInterrupt: none of them is served yet.
        """
        self.stopping.set()
        if all(isinstance(task.stage, Starting) for task in self._hosted.values()):
            raise KeyboardInterrupt
        async with trio.open_nursery() as nursery:
            for task in self._hosted.values():
                nursery.start_soon(task.stop, self._wind_up(task))
        self._moved.set()  # where all had been drained before, nothing else moves

    @property
    def longest_wind_up(self) -> float:
        """Seconds that running rounds have to end when the process is told to stop."""
        return max(map(self._wind_up, self._hosted.values()), default=0.0)

    def _wind_up(self, task: HostedTask) -> float:
        return task.file.rounds.wind_up if self._stop_seconds is None else self._stop_seconds

    # ---- the desk

    @property
    def process(self) -> OperatorObserver:
        """See `OperatedProcess`: the observer of the process, or of its only task."""
        return self._own or next(iter(self._hosted.values())).observer

    def tasks(self) -> Sequence[HostedTask]:
        """See `OperatedProcess`."""
        return list(self._hosted.values())

    async def drain(self, name: str) -> None:
        """See `OperatedProcess`."""
        self._require_several()
        task = self._hosted[name]
        if not isinstance(task.stage, Running | Starting):
            raise MisuseError(f"task {name!r} is not running: it is {task.standing().state}")
        _log.info("task %r is drained: its running round has %g s to end", name, self._wind_up(task))
        if (draining := task.begin_to_drain()) is not None:
            self._nursery.start_soon(task.drain, draining, self._wind_up(task))

    async def start(self, name: str) -> None:
        """See `OperatedProcess`."""
        self._require_several()
        if self.stopping.is_set():
            raise MisuseError(f"task {name!r} cannot be started: S{self._common.server} has been told to stop")
        task = self._hosted[name]
        if not isinstance(task.stage, Ended | Failed) or name in self._leaving:
            raise MisuseError(f"task {name!r} is {task.standing().state}; only one that has ended can be started")
        pairs = {pair[1].task.name: pair for pair in self._checked(HostFile.load(self._file.path))}
        if name not in pairs:
            raise MisuseError(f"{self._file.path} has no task {name!r} any more")
        self.router.forget(task.digest)
        task.take(*pairs[name])
        _log.info("task %r is started", name)
        self._begin(task)
        await trio.lowlevel.checkpoint()

    def _require_several(self) -> None:
        if not self._file.listed:
            raise MisuseError(
                f"{self._file.path} has one task, at its top, which begins and ends with the process; tasks in tables "
                "[[tasks]] can be drained and started"
            )

    # ---- the file, read again

    def reload(self) -> None:
        """Read the lists, the tokens and the file again: start new tasks, drain those that are gone."""
        for task in self._hosted.values():
            task.reload()
        try:
            file = HostFile.load(self._file.path)
            pairs = self._checked(file)
        except MisuseError as error:
            self._warn(f"{error}; the file as read at the start stays in force")
            return
        self._log_from(file.common.log.level)
        changed = _changed(self._common, file.common, CommonFile if file.listed else ServerFile)
        later = [key for key in changed if key not in RELOADED and key != "limits.memory_bytes"]
        if later:
            self._warn(f"changes of {', '.join(later)} take effect when the server is started again")
        if file.listed and not self.stopping.is_set():
            self._take(pairs)

    def _checked(self, file: HostFile) -> list[Pair]:
        """What a file says of tasks that this process can serve; nothing, of a file with one task at its top.

        Raises:
            MisuseError: it cannot serve them.
        """
        if file.listed != self._file.listed:
            raise MisuseError(f"{file.path}: tables [[tasks]] cannot be begun or given up by a running server")
        if not file.listed:
            return []
        if file.common.server != self._common.server:
            raise MisuseError(f"{file.path} is the file of S{file.common.server}, and this is S{self._common.server}")
        pairs = file.deployments()
        names = {deployment.task.name for _, deployment in pairs}
        gone = [(task.file, task.deployment) for name, task in self._hosted.items() if name not in names]
        check_together(file.path, [*gone, *pairs])
        check_number(file.path, len(gone) + len(pairs))
        self._check_places(pairs)
        for pair in pairs:
            check_keys(file.path, self._founding, pair)
            own_identity(*pair)
        return pairs

    def _check_places(self, pairs: Sequence[Pair]) -> None:
        """Refuse a task that would use the store of another one that has not ended, or write into its files.

        Raises:
            MisuseError: there is one; another task has the file until it has ended.
        """
        held = {
            name: places(task.file) for name, task in self._hosted.items() if not isinstance(task.stage, Ended | Failed)
        }
        for file, deployment in pairs:
            name = deployment.task.name
            for key, place in places(file):
                for other in held.keys() - {name}:
                    if any(place == taken for _, taken in held[other]):
                        raise MisuseError(
                            f"{self._file.path}: {key} of task {name!r}, {place}, is in use by task {other!r}, as the "
                            f"file said when that was started; drain {other!r} first"
                        )

    def _take(self, pairs: Sequence[Pair]) -> None:
        """Start the tasks that are new, drain those that are gone, and say which have changed."""
        named = {pair[1].task.name: pair for pair in pairs}
        for name in self._hosted.keys() - named.keys() - self._leaving:
            self._leaving.add(name)
            _log.info("task %r is not in %s any more: it is drained, then removed", name, self._file.path)
            self._nursery.start_soon(self._remove, self._hosted[name])
        for name, pair in named.items():
            if name in self._leaving:
                explanation = "is still being drained to be removed; send SIGHUP again once `tasks list` has it no more"
                self._hosted[name].warn("configuration", f"task {name!r} {explanation}")
            elif name not in self._hosted:
                _log.info("task %r is new in %s", name, self._file.path)
                self._hosted[name] = self._made(pair)
                self._begin(self._hosted[name])
            elif changes := self._changes(self._hosted[name], pair):
                self._hosted[name].warn(
                    "configuration",
                    f"changes of {', '.join(changes)} take effect when task {name!r} is drained and started again",
                )

    def _changes(self, task: HostedTask, pair: Pair) -> list[str]:
        file, deployment = pair
        changes = _changed(task.file, file, TaskTable)
        if task.file.limits.memory_bytes != file.limits.memory_bytes:
            changes.append("memory_bytes")
        return changes if deployment == task.deployment else [*changes, f"the task file {file.task}"]

    async def _remove(self, task: HostedTask) -> None:
        await task.stop(self._wind_up(task))
        await self._until(lambda: isinstance(task.stage, Ended | Failed))
        del self._hosted[task.name]
        self._leaving.discard(task.name)
        self.router.forget(task.digest)
        _log.info("task %r is removed", task.name)
        self._moved.set()

    def _made(self, pair: Pair) -> HostedTask:
        file, deployment = pair
        own_identity(file, deployment)
        return HostedTask(
            self._file.path, file, deployment, self._log, self._own, self._threads.lane(), self._moved, self._transport
        )

    def _log_from(self, level: str) -> None:
        """Change the level of the log; the change is logged at the more verbose of both levels."""
        before = self._log.level
        self._log.set_level(min(before, level, key=level_number))
        now = f"log.level is {level} now, and was {before}" if level != before else f"log.level is {level} as before"
        _log.info("%s has been read again: %s", self._file.path, now)
        self._log.set_level(level)

    # ---- the process's own troubles

    def _warn(self, explanation: str) -> None:
        self.process(Warned(about="configuration", explanation=explanation))

    def _tell_failure(self, origin: str, error: FslError) -> None:
        self.process(ConnectionFailed(origin=origin, kind=type(error).__name__, explanation=str(error)))


def _listening(file: ServerFile, deployment: Deployment, transport: Transport, *, several: bool) -> Listening:
    """Where and as whom the process listens."""
    identity = own_identity(file, deployment)
    return Listening(
        name=f"S{file.server}",
        peer=deployment.identity(1 - file.server).channel,
        address=file.listen,
        transport=transport,
        settings=HandshakeSettings(
            private_key=identity.channel_secret,
            role=Role.SERVER_1 if file.server else Role.SERVER_0,
            kind=Kind.LIVE,
            randomness=os.urandom,
        ),
        limits=file.limits.strangers,
        several=several,
    )


def _changed(old: ServerFile, new: ServerFile, kind: type[msgspec.Struct]) -> list[str]:
    """The keys of the settings in which two files differ, of those that a kind of file has."""
    keys = []
    for found in settings(kind):
        if found.name == "memory_bytes" and not found.section:
            continue
        before, after = (_said(getattr(file, found.section) if found.section else file) for file in (old, new))
        if before[found.name] != after[found.name]:
            keys.append(found.key)
    return keys


def _said(table: msgspec.Struct) -> dict[str, Any]:
    """What a table says, by key."""
    return {field.encode_name: getattr(table, field.name) for field in msgspec.structs.fields(table)}
