"""A server's file as its process reads it: what its tasks share, and the settings of each task.

    s0.toml                                s0.toml
    server, identity, listen, [limits] …   server, identity, listen, [limits] …
    task, model, store, [rounds] …         [[tasks]]  task, model, store, [tasks.rounds] …
                                           [[tasks]]  …

Rules: what is common stands at the top, what belongs to a task in its table; each task's settings are a `ServerFile`,
the same as those of a server with this task alone. No two tasks have one name, one digest, one store or one file that
is written; they have the same servers. A file without [[tasks]] has one task, whose settings stand at the top.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from fsl_async.errors import MisuseError
from parties.files.models import state_path
from parties.files.toml import About, read_toml
from parties.identity.handshake import MOST_TASKS
from parties.schedule import TIB
from parties.settings.party_file import (
    KINDS,
    ClientFile,
    ServerFile,
    check_listen,
    check_tables,
    refuse_task_file,
)
from parties.settings.reading import OnDisk, from_table, overrides, refuse_strange_variables, settings
from parties.settings.task_file import Deployment

COMMON: Final = ("server", "identity", "listen", "transport", "threads", "limits", "web", "operator", "log")
"""The keys and tables that all tasks share; all others belong to one task."""

WRITTEN: Final = ("store", "save_model", "save_update", "checkpoints", "tokens")
"""The keys of a task that name what no other task may use."""

TASKS = "tasks"

Pair: TypeAlias = tuple[ServerFile, Deployment]
"""A task's settings, with its task file."""

MemoryBytes = Annotated[
    int | None,
    About(
        "memory for this task's requests and answers, as limits.memory_bytes, which each task has for itself unless it "
        "is given here",
        unit="bytes",
        low=0,
        high=TIB,
    ),
]


def _part(name: str, doc: str, *, common: bool, **more: Any) -> type[msgspec.Struct]:
    """The struct of those fields of `ServerFile` that are common, or of the others."""
    fields: list[tuple[str, Any, Any]] = [
        (field.name, field.type) if field.required else (field.name, field.type, field.default)  # type: ignore[misc]
        for field in msgspec.structs.fields(ServerFile)
        if (field.name in COMMON) == common
    ]
    fields += [(key, kind, None) for key, kind in more.items()]
    return msgspec.defstruct(
        name, fields, frozen=True, forbid_unknown_fields=True, kw_only=True, namespace={"__doc__": doc}
    )


CommonFile: type[msgspec.Struct] = _part("CommonFile", "What the tasks of a server's file share.", common=True)

TaskTable: type[msgspec.Struct] = _part(
    "TaskTable", "One task of a server with several.", common=False, memory_bytes=MemoryBytes
)


@dataclass(frozen=True)
class HostFile:
    """A server's file.

    Attributes:
        path: where it was read.
        tasks: the settings of each task, with the common ones; one or more.
        listed: whether the tasks are in tables [[tasks]].
    """

    path: Path
    tasks: tuple[ServerFile, ...]
    listed: bool

    @staticmethod
    def load(path: Path, environment: Mapping[str, str] = os.environ) -> HostFile:
        """Read a server's file, with or without [[tasks]]; its paths are relative to it.

        Raises:
            MisuseError: it cannot be read, a key is unknown, missing, out of range or in the wrong place, or two tasks
                name one store or one file that is written.
        """
        return HostFile.from_table(read_toml(path), path, environment)

    @staticmethod
    def from_table(table: dict[str, Any], path: Path, environment: Mapping[str, str] = os.environ) -> HostFile:
        """The same as `load`, for a file that has been read already."""
        refuse_task_file(path, table, "give the server's own file, which names it")
        if TASKS not in table:
            return HostFile(path, (ServerFile.from_table(table, path, environment),), listed=False)
        refuse_strange_variables(KINDS, environment)
        entries = _entries(table.pop(TASKS), path)
        _refuse_out_of_place(table, path, environment)
        common = from_table(table, path, CommonFile, environment)
        files = tuple(_task_file(common, entry, path, number) for number, entry in enumerate(entries, start=1))
        check_listen(files[0], str(path))
        _refuse_shared(files, path)
        return HostFile(path, files, listed=True)

    @property
    def common(self) -> ServerFile:
        """Settings of which those that the tasks share may be used: the first task's."""
        return self.tasks[0]

    @property
    def kind(self) -> type[msgspec.Struct]:
        """The struct whose settings environment variables override."""
        return CommonFile if self.listed else ServerFile

    def deployments(self) -> list[Pair]:
        """Each task's settings with its task file; the tasks can be served together.

        Raises:
            MisuseError: a task file is missing or wrong, or two tasks cannot be served together.
        """
        pairs = [(file, Deployment.load(file.task)) for file in self.tasks]
        check_together(self.path, pairs)
        return pairs

    def named(self, task: str) -> ServerFile:
        """The settings of the task of that name; empty: of the only one.

        Raises:
            MisuseError: there is no such task, or several and none is named.
        """
        if not task and len(self.tasks) == 1:
            return self.tasks[0]
        names = self._names()
        known = ", ".join(sorted(names)) or "none whose task file can be read"
        if not task:
            raise MisuseError(f"{self.path} has several tasks; name one with --task: {known}")
        if task not in names:
            raise MisuseError(f"{self.path} has no task {task!r}; it has: {known}")
        return names[task]

    def _names(self) -> dict[str, ServerFile]:
        """The settings by the name of the task; without those whose task file cannot be read."""
        names = {}
        for file in self.tasks:
            try:
                names[Deployment.load(file.task).task.name] = file
            except MisuseError:
                continue
        return names


PartyFile: TypeAlias = HostFile | ClientFile


def load_party(path: Path, environment: Mapping[str, str] = os.environ) -> PartyFile:
    """Read the file of a server or of a client.

    Raises:
        MisuseError: it cannot be read, is neither, or has a mistake in it.
    """
    table = read_toml(path)
    refuse_task_file(path, table)
    if table.keys() & {"server", "listen", "store", "model", TASKS}:
        return HostFile.from_table(table, path, environment)
    return ClientFile.from_table(table, path, environment)


def task_settings(path: Path, task: str = "") -> ServerFile:
    """The settings of one task of a server's file.

    Raises:
        MisuseError: the file cannot be read; it has no such task; or it has several, and none is named.
    """
    return HostFile.load(path).named(task)


def check_together(path: Path, pairs: Sequence[Pair]) -> None:
    """Refuse tasks that one server cannot have together.

    Raises:
        MisuseError: two have one name or one digest, or they name other addresses or other keys of servers.
    """
    seen: dict[str, Path] = {}
    (first, common), *_ = pairs
    for file, deployment in pairs:
        name, digest = deployment.task.name, deployment.task.digest().hex()
        for mark, what in ((name, f"are called {name!r}"), (digest, "have the same task")):
            if mark in seen:
                raise MisuseError(
                    f"{path}: {seen[mark]} and {file.task} {what}; each task of a server has a name and a digest of "
                    "its own: give one of them another name, on both servers and to its clients"
                )
            seen[mark] = file.task
        for index in (0, 1):
            if deployment.addresses[index] != common.addresses[index]:
                raise MisuseError(
                    f"{path}: {file.task} says that S{index} is at {deployment.addresses[index]}, and {first.task} "
                    f"that it is at {common.addresses[index]}; the tasks of one server have the same two servers"
                )
        check_keys(path, (first, common), (file, deployment))


def check_keys(path: Path, first: Pair, pair: Pair) -> None:
    """Refuse a task whose servers have other keys than those of the first task.

    Raises:
        MisuseError: they have.
    """
    for index in (0, 1):
        if pair[1].identity(index).keys != first[1].identity(index).keys:
            raise MisuseError(
                f"{path}: {pair[0].task} gives S{index} other keys than {first[0].task}; the tasks of one server have "
                "the same two servers"
            )


def check_number(path: Path, number: int) -> None:
    """Refuse more tasks than one server can have, those counted that are still to be removed.

    Raises:
        MisuseError: there are more.
    """
    if number > MOST_TASKS:
        raise MisuseError(f"{path}: {number} tasks; one server has {MOST_TASKS} at most")


def places(file: ServerFile) -> list[tuple[str, Path]]:
    """The files and folders that no other task may use, each with its key."""
    found = []
    for key in WRITTEN:
        value = getattr(file, key)
        place = value.path if isinstance(value, OnDisk) else value
        if isinstance(place, Path):
            found.append((key, Path(os.path.realpath(place.parent), place.name)))
        if key == "save_model" and isinstance(place, Path):
            found.append((f"the state beside {key}", state_path(found[-1][1])))
    return found


def _entries(tables: Any, path: Path) -> list[dict[str, Any]]:
    if not (isinstance(tables, list) and tables and all(isinstance(table, dict) for table in tables)):
        raise MisuseError(f"{path}: tasks must be tables [[tasks]], one for each task, and at least one")
    check_number(path, len(tables))
    return tables


def _refuse_out_of_place(table: Mapping[str, Any], path: Path, environment: Mapping[str, str]) -> None:
    """Refuse a task's settings where they would belong to no task, or to every one."""
    own = [found for found in settings(TaskTable) if found.key != "memory_bytes"]
    keys = {found.section or found.name for found in own}
    for key in table:
        if key in keys:
            raise MisuseError(f"{path}: {key} belongs to one task: write it into a table [[tasks]]")
    for found, _ in overrides(TaskTable, environment):
        raise MisuseError(
            f"{found.variable} in the environment would override {found.key} of every task: write it into the tables "
            f"[[tasks]] of {path}"
        )


def _task_file(common: msgspec.Struct, entry: dict[str, Any], path: Path, number: int) -> ServerFile:
    where = f"{path}, [[tasks]] {number}"
    for key in entry:
        if key in COMMON:
            raise MisuseError(f"{where}: {key} is common to all tasks: write it at the top of the file")
    own = msgspec.structs.asdict(from_table(entry, path, TaskTable, {}, where=where))
    shared = msgspec.structs.asdict(common)
    memory = own.pop("memory_bytes")
    if memory is not None:
        shared["limits"] = msgspec.structs.replace(shared["limits"], memory_bytes=memory)
    file = ServerFile(**shared, **own)
    check_tables(file, where)
    return file


def _refuse_shared(files: Sequence[ServerFile], path: Path) -> None:
    """Refuse two tasks that would use one store, or write one file."""
    seen: dict[Path, tuple[str, int]] = {}
    for number, file in enumerate(files, start=1):
        for key, place in places(file):
            if place in seen:
                other, which = seen[place]
                why = "a token enrols one client in one task" if key == "tokens" else "each task has its own"
                raise MisuseError(
                    f"{path}: {key} of [[tasks]] {number} and {other} of [[tasks]] {which} are both {place}; {why}"
                )
            seen[place] = key, number
