"""Checks of a party's files: its keys, its model, its lists, its store."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fsl_async.config import describe_model
from fsl_async.errors import MisuseError, StorageError
from fsl_async.model_numbers import check_numbers, narrow_blocks
from fsl_async.server.rules import check_state
from fsl_async.server_rules import optimizer_arrays
from fsl_async.task import Task
from parties.commands.preflight.findings import Doubt
from parties.deployment.server import allowed_rule, check_rounds, own_identity, starting_model
from parties.files.disk import check_room, exists, in_use, refuse_network
from parties.files.models import load_model
from parties.identity.keys import Identity, read_private
from parties.identity.registry import Registry
from parties.identity.tokens import TokenBook, read_token
from parties.outcome import Model
from parties.server.admission import OPEN_WARNING
from parties.server.round.records import client_bytes, round_bytes
from parties.settings.party_file import ClientFile, ServerFile
from parties.settings.reading import OnDisk, StoreSetting
from parties.settings.task_file import Deployment
from parties.storage.sqlite_file import LONGEST_LOG_BYTES, log_bytes
from parties.storage.sqlite_store import SqliteStore

ORDINARY_MINIMUM = 16
MODEL_COPIES = 2  # the file is written beside the one that it replaces


# ---- keys


def own_keys(file: ServerFile, deployment: Deployment) -> str:
    """A server's keys are its own, and those of the task file."""
    own_identity(file, deployment)
    return f"{file.identity} holds the keys that {file.task} gives for S{file.server}, and is its owner's alone"


def client_keys(file: ClientFile) -> str:
    """A client's keys can be used."""
    return f"{file.identity} holds the keys of {Identity.load(file.identity).name!r}, and is its owner's alone"


def key_folder(path: Path, deployment: Deployment) -> str:
    """Nobody else can replace the keys, and the folder does not hold the keys of both servers."""
    folder = path.absolute().parent
    if folder.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise Doubt(f"others can write {folder}, and replace the keys in it; `chmod go-w` it")
    servers = {keys.channel: f"S{number}" for number, keys in enumerate(deployment.identities)}
    names = sorted({servers[key] for key in _channel_keys(folder) if key in servers})
    if len(names) > 1:
        raise Doubt(
            f"{folder} has the secret keys of both servers: anybody who reads it can read every client's rows; a "
            "deployment keeps them on two hosts of two operators"
        )
    return f"{folder} can be written by its owner alone"


def _channel_keys(folder: Path) -> list[bytes]:
    """The public channel keys of the secret files in a folder that this user can read."""
    keys = []
    for path in sorted(folder.glob("*.key"))[:100]:
        try:
            keys.append(Identity.load(path).public.channel)
        except MisuseError:
            continue  # another user's, or not a file of keys
    return keys


def token(file: ClientFile) -> str:
    """If a client has a token, it is well-formed."""
    if file.token is None:
        return "none: the servers must have this client on their lists"
    read_token(read_private(file.token, "ask the servers' operators for a token"))
    return f"{file.token} holds one; the servers tell whether it is theirs when it is used"


# ---- who is admitted


def admission(file: ServerFile, task: Task) -> str:
    """Enough clients are admitted, and not just anybody."""
    if file.clients and not exists(file.clients):
        raise MisuseError(f"{file.clients} cannot be read: there is none; `fsl-async clients add` makes it")
    registry = Registry.load(file.clients) if file.clients else Registry()
    if file.enrolment == "open":
        raise Doubt(OPEN_WARNING)
    if file.tokens is not None:
        book = TokenBook.load(file.tokens, task.digest(), file.server)
        return f"{len(registry)} clients listed, {len(book)} tokens"
    if task.protocol == "psr":
        return f"{len(registry)} clients listed; a round that only serves retrievals needs none"
    if len(registry) < task.quorum:
        raise Doubt(
            f"{file.clients} lists {len(registry)} clients, and a round needs at least {task.quorum}; "
            "`fsl-async clients add` them, at both servers"
        )
    if task.quorum < ORDINARY_MINIMUM:
        raise Doubt(
            f"{len(registry)} clients listed; but a sum of min_clients = {task.quorum} says much about each; "
            f"{ORDINARY_MINIMUM} or more are usual"
        )
    return f"{len(registry)} clients listed, a round needs {task.quorum}"


# ---- the model


def model(file: ServerFile, task: Task) -> str:
    """The model exists and fits the task, and what the task does with a sum is possible; the state fits as well."""
    allowed_rule(file, task)
    arrays = starting_model(file, task)
    describe_model(task, arrays)
    check_numbers(task, arrays)
    check_state(task, load_model(file.state) if file.state else {})
    if task.protocol == "psu":
        return "none: the task's rounds find unions"
    if task.protocol == "psr":
        return f"{file.model} fits the task: {_total(arrays)}; it never changes"
    for name, largest in narrow_blocks(task, arrays).items():
        raise Doubt(
            f"{file.model}: block {name!r} is of {arrays[name].dtype}, which holds {largest:g} at most, and one client "
            f"may submit {task.largest_value:g}: a sum that does not fit is refused, and its round lost; set `largest` "
            "in the task, or take a wider dtype"
        )
    whole = [name for name, array in arrays.items() if array.dtype.kind != "f"]
    if whole and task.ring.fraction_bits:
        raise Doubt(
            f"{file.model}: block {whole[0]!r} is of {arrays[whole[0]].dtype}, so that clients can submit whole "
            f"numbers alone to it, though the ring has {task.ring.fraction_bits} fraction bits; right if it counts "
            "something"
        )
    return f"{file.model} fits the task: {_total(arrays)}"


def _total(arrays: Model) -> str:
    return f"{sum(array.nbytes for array in arrays.values()):,} bytes"


def rounds(file: ServerFile, task: Task) -> str:
    """Rounds come to an end, by what they run."""
    check_rounds(file.rounds, task)
    ends = []
    if task.protocol != "psr":
        ends.append(f"after {file.rounds.clients or task.max_clients} submissions")
    if task.draws:
        ends.append("when all that were drawn have submitted")
    if file.rounds.seconds:
        ends.append(f"after {file.rounds.seconds:g} s")
    text = f"a round runs {task.protocol} and closes {' or '.join(ends)}"
    if task.protocol != "psr" and (file.rounds.clients or task.max_clients) <= task.quorum:
        raise Doubt(
            f"{text}: the fewest that it needs, so that one uncounted client aborts it; let it close after some more"
        )
    return text


def model_bytes(task: Task) -> int:
    """The most bytes that a task's model has with an optimizer's arrays: weights of 64 bits."""
    return 8 * (1 + optimizer_arrays(task.optimizer)) * sum(block.weights for block in task.model_blocks)


# ---- the store


def is_running(place: StoreSetting) -> bool:
    """Whether a process has the store in use now."""
    return isinstance(place, OnDisk) and in_use(place.path)


async def store(place: StoreSetting, *, marked: bool = True) -> str:
    """The store can be used."""
    if not isinstance(place, OnDisk):
        raise Doubt(
            "THE STORE IS IN MEMORY: a server that is killed loses every submission that it has acknowledged; for "
            'anything but a trial set store = "FILE"'
        )
    if is_running(place):
        raise Doubt(f"{place.path} is in use: the server is running")
    if _is_new(place.path):
        return f"{place.path} is made when the server starts"
    await (await SqliteStore.open(place.path, marked=marked)).aclose()
    return f"{place.path} can be read and written, and lies on a local disk"


def _is_new(path: Path) -> bool:
    """Whether a store does not exist yet, and can be created.

    Raises:
        StorageError: it cannot be created.
    """
    if exists(path):
        return False
    refuse_network(path.absolute())
    if not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise StorageError(f"{path} cannot be made: its folder is missing or not writable; it must be the server's own")
    return True


async def state(path: Path) -> str:
    """A client's state can be kept."""
    if is_running(OnDisk(path)):
        raise Doubt(f"{path} is in use: the client is running")
    return await store(OnDisk(path), marked=False)


def disk(file: ServerFile, task: Task) -> str:
    """There is room for all submissions of a round, and for the models."""
    clients = file.rounds.clients or task.max_clients
    submissions, _ = _stored_bytes(file, task)
    _check_rooms(_needed(file, task))
    if file.checkpoints is not None:
        check_room(file.checkpoints.absolute(), model_bytes(task) * (file.checkpoints_kept + 1))
    return (
        f"room for {clients} submissions, {submissions / 1e6:,.0f} MB, and the model, and what must stay free besides"
    )


def disk_for_all(tasks: Sequence[tuple[ServerFile, Task]]) -> str:
    """There is room for the stores of all tasks at once, where they lie on one disk."""
    needed = [each for file, task in tasks for each in _needed(file, task) if exists(each[0].parent)]
    _check_rooms(needed)
    return f"room for rounds of {len(tasks)} tasks at once, {sum(size for _, size in needed) / 1e6:,.0f} MB"


def _needed(file: ServerFile, task: Task) -> Iterator[tuple[Path, int]]:
    """The places that a server writes on disks, and how many bytes there."""
    if isinstance(file.store, OnDisk):
        submissions, models = _stored_bytes(file, task)
        store = file.store.path.absolute()
        yield store, models + max(0, LONGEST_LOG_BYTES - log_bytes(store))
        folder = file.blobs_folder
        if folder is not None:
            yield folder.absolute(), submissions


def _check_rooms(needed: Iterable[tuple[Path, int]]) -> None:
    """Check that there is room for all places together that lie on one disk.

    Raises:
        StorageError: there is not.
    """
    disks: dict[int, tuple[Path, int]] = {}
    for place, size in needed:
        if not exists(place.parent):
            check_room(place, size)  # which says so
        device = place.parent.stat().st_dev
        disks[device] = place, disks.get(device, (place, 0))[1] + size
    for place, size in disks.values():
        check_room(place, size)


def _stored_bytes(file: ServerFile, task: Task) -> tuple[int, int]:
    """The bytes that a store has of submissions and of models."""
    clients = file.rounds.clients or task.max_clients
    submissions = round_bytes(task, clients) + clients * client_bytes(task) * file.rounds.retention
    return submissions, model_bytes(task) * MODEL_COPIES
