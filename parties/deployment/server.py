"""A server, made from its own file and the files that this one names: task, keys, lists, model and store."""

from __future__ import annotations

import importlib.metadata
import logging
import os
from dataclasses import replace
from pathlib import Path

import trio

from fsl_async.errors import MisuseError
from fsl_async.server_rules import OwnRule
from fsl_async.task import Task
from parties.compute import ComputeLane, InlineLane, ThreadLane
from parties.deployment.blobs import open_blobs, refuse_others_bulk, warn_of_missing
from parties.deployment.compute import engine_of
from parties.deployment.transports import chosen_transport
from parties.files.models import load_model
from parties.identity.keys import Identity
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook
from parties.outcome import Model
from parties.server.admission import Anyone, ListOnly, Policy, WithToken
from parties.server.round.own_rule import found
from parties.server.setup import ServerSetup
from parties.server.storage import PAUSE
from parties.settings.party_file import RoundsTable, ServerFile
from parties.settings.reading import OnDisk, StoreSetting
from parties.settings.task_file import Deployment
from parties.storage.blobs.blobs import Blobs
from parties.storage.sqlite_store import SqliteStore
from parties.storage.store import DiskFullError, MemoryStore, Store
from parties.watch import Watch, silent
from transport import Kind, Transport
from transport.needs_trio import NeedsTrio

_log = logging.getLogger("parties.deployment")


async def server_setup(
    config: str | Path,
    watch: Watch = silent,
    *,
    file: ServerFile | None = None,
    lane: ComputeLane | None = None,
    transport: Transport | None = None,
) -> ServerSetup:
    """Everything that a server needs; its store and its blobs are open, and the caller closes them.

    Args:
        config: the server's own file.
        watch: hears of every message that the server sends.
        file: what was read of `config`, where it has been read already; of a file with several tasks, one task's.
        lane: where it computes; left out, in threads of its own.
        transport: what connects the server with the others; left out, what its file says.

    Raises:
        MisuseError: a file is missing or wrong, or the keys are not those of the task file.
        StorageError: the store cannot be used, or the place of its blobs.
    """
    NeedsTrio("parties.server_setup").require_trio()
    file = file or ServerFile.load(Path(config))
    deployment = Deployment.load(file.task)
    rule = allowed_rule(file, deployment.task)
    try:
        check_rounds(file.rounds, deployment.task)
        model = await trio.to_thread.run_sync(starting_model, file, deployment.task)
    except MisuseError as error:
        raise MisuseError(f"{config}: {error}") from error
    setup = ServerSetup(
        task=deployment.task,
        index=file.server,
        identity=own_identity(file, deployment),
        peer=deployment.identity(1 - file.server),
        peer_address=deployment.addresses[0],
        registry=Registry.load(file.clients) if file.clients else Registry(),
        policy=_policy(file, deployment.task),
        model=model,
        state=await trio.to_thread.run_sync(load_model, file.state) if file.state else {},
        apply=rule,
        keeps_update=file.save_update is not None,
        address=file.listen,
        transport=chosen_transport(transport, file.transport, file.web),
        lane=InlineLane() if file.compute.engine == "inline" else lane or ThreadLane(file.threads or None),
        randomness=os.urandom,
        kind=Kind.LIVE,
        schedule=file.rounds.schedule(deployment.task.max_clients),
        limits=file.limits.strangers,
        conversations=file.limits,
        watch=watch,
        store=MemoryStore(),
        release=importlib.metadata.version("fsl-async"),
    )
    return await _with_disks(setup, file, deployment)


async def _with_disks(setup: ServerSetup, file: ServerFile, deployment: Deployment) -> ServerSetup:
    """The same server with its store and its blobs, both opened, or neither."""
    await trio.to_thread.run_sync(warn_of_missing, file)
    opened: list[Store | Blobs] = [store := await open_store(file.store)]
    try:
        engine = engine_of(file, deployment, setup.lane)
        opened.append(blobs := await open_blobs(file, deployment))
        if isinstance(file.store, OnDisk):
            await refuse_others_bulk(blobs, store)
        return replace(setup, store=store, engine=engine, blobs=blobs)
    except BaseException:
        with trio.CancelScope(shield=True):
            for one in opened:
                await one.aclose()
        raise


def allowed_rule(file: ServerFile, task: Task) -> OwnRule | None:
    """The function that a task applies, imported if the server's own file names it too; None where it applies none.

    Raises:
        MisuseError: the file does not name it, or names another or one too many; or it cannot be imported.
    """
    if task.rule != "own":
        if file.apply is not None:
            raise MisuseError(
                f'apply = "{file.apply}" in the file of S{file.server}: {file.task} applies the "{task.apply}", and no '
                "function; remove the line"
            )
        return None
    if file.apply != task.apply:
        here = f"names {file.apply}" if file.apply else "names none"
        raise MisuseError(
            f"{file.task} applies the function {task.apply}, and the file of S{file.server} {here}. The server would "
            f'run it with all its rights: read it, install its module, and then write apply = "{task.apply}" into that '
            "file"
        )
    if str(task.apply).startswith("__main__:"):
        raise MisuseError(
            f"{file.task} applies {task.apply}, a function of the script that made the task; move it into a module "
            "that both servers can import, and make the task anew"
        )
    return found(str(task.apply))


async def open_store(place: StoreSetting) -> Store:
    """Open a server's store; if the disk is full, wait until there is room.

    Raises:
        StorageError: it cannot be used; the message says what to do.
    """
    if not isinstance(place, OnDisk):
        return MemoryStore()
    while True:
        try:
            return await SqliteStore.open(place.path, marked=True)
        except DiskFullError as error:
            _log.warning("%s; the server waits, and then starts", error)
            await trio.sleep(PAUSE)


def own_identity(file: ServerFile, deployment: Deployment) -> Identity:
    """A server's keys, which must be those in the task file.

    Raises:
        MisuseError: they are not, or cannot be read.
    """
    identity = Identity.load(file.identity)
    if identity.public.keys != deployment.identity(file.server).keys:
        raise MisuseError(
            f"{file.identity} does not hold the keys that {file.task} gives for server {file.server}; correct the "
            f"number or the file name, or write the keys into the task file with `fsl-async peers add`"
        )
    return identity


def _policy(file: ServerFile, task: Task) -> Policy:
    """Who is admitted besides the clients on the list.

    Raises:
        MisuseError: the file of tokens is missing or malformed, or for another task.
    """
    if file.tokens is not None:
        return WithToken(TokenBook.load(file.tokens, task.digest(), file.server))
    return Anyone() if file.enrolment == "open" else ListOnly()


def starting_model(file: ServerFile, task: Task) -> Model:
    """The model of the first round; none where rounds only find unions.

    Raises:
        MisuseError: the file names none, or cannot be read; or the task has none, and the file names one; or the file
            names one for sums, and there are none.
    """
    if task.protocol != "ssa" and file.save_update is not None:
        raise MisuseError(
            f'save_update = {str(file.save_update)!r}: task {task.name!r} has protocol = "{task.protocol}", its rounds '
            "sum nothing; remove save_update"
        )
    if task.protocol == "psu":
        for key in ("model", "save_model", "checkpoints"):
            if getattr(file, key) is not None:
                raise MisuseError(
                    f'{key} = {str(getattr(file, key))!r}: task {task.name!r} has protocol = "psu", its rounds find '
                    f"unions and there is no model; remove {key}"
                )
        return {}
    if file.model is None:
        raise MisuseError(f"model is missing: task {task.name!r} needs the file of the model of its first round")
    return load_model(file.model)


def check_rounds(rounds: RoundsTable, task: Task) -> None:
    """Check when rounds close.

    Raises:
        MisuseError: more submissions are awaited than the task has clients; or rounds only serve retrievals, and wait
            for submissions or for ever.
    """
    if task.protocol == "psr" and rounds.clients:
        raise MisuseError(
            f'rounds.clients = {rounds.clients}: task {task.name!r} has protocol = "psr", its rounds take no '
            "submissions; remove rounds.clients, and set rounds.seconds"
        )
    if task.protocol == "psr" and not rounds.seconds:
        raise MisuseError(
            f"rounds.seconds = 0: the rounds of task {task.name!r} only serve retrievals, so nothing but time ends "
            f"them, and a client that has made its {task.retrievals} retrievals of a round would wait for ever for the "
            "next; set rounds.seconds, such as 3600"
        )
    if rounds.clients > task.max_clients:
        raise MisuseError(
            f"rounds.clients must be at most {task.max_clients}, the max_clients of task {task.name!r}, not "
            f"{rounds.clients}"
        )
