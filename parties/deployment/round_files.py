"""The files that a server writes after each round: its model, the optimizer's state, the round's sum, checkpoints.

Rules: each file appears whole; a file that cannot be written is reported and does not stop the server, because the
store has what it would hold, and it is written after the next round, or when the server is started again. The state
stands beside the model that belongs to it, and is written first.
"""

from __future__ import annotations

import os

import numpy as np

from fsl_async.errors import MisuseError, StorageError
from fsl_async.task import Task
from parties.files.models import ModelForm, checkpoint, save_model, save_state, state_path
from parties.server.server import Server
from parties.settings.party_file import ServerFile


def prepare_files(file: ServerFile, task: Task) -> None:
    """Make the folder of checkpoints that a server's own file names; refuse what could never be written.

    Raises:
        MisuseError: a file's name has a wrong suffix, or is another file's; or no file can hold the task's sums.
        StorageError: the folder cannot be made.
    """
    _refuse_one_name(file)
    if file.save_update:
        ModelForm.of(file.save_update)
    if file.save_update and task.ring.bits == 128 and task.ring.fraction_bits == 0:
        raise MisuseError("save_update: no file holds sums of whole numbers of 128 bits; use a ring of 64 bits")
    if file.checkpoints:
        try:
            file.checkpoints.mkdir(exist_ok=True)
        except OSError as error:
            text = f"{file.checkpoints}, the folder of checkpoints, cannot be made: {error.strerror}"
            raise StorageError(text) from error


def _refuse_one_name(file: ServerFile) -> None:
    """Refuse two files of one name, of which one would be written over the other."""
    beside = state_path(file.save_model) if file.save_model else None
    written = {"save_update": file.save_update, "save_model": file.save_model}
    others = {"model": file.model, "state": file.state, "save_model": file.save_model, "save_model's state": beside}
    for key, path in written.items():
        for other, same in others.items():
            if path is None or same is None or key == other or {key, other} == {"save_model", "model"}:
                continue
            if os.path.realpath(path) == os.path.realpath(same):
                raise MisuseError(f"{key} = {str(path)!r} is the file of {other} as well; give it another name")


def write_files(file: ServerFile, server: Server, number: int) -> None:
    """Write all of them.

    Args:
        file: the server's own file, which names them.
        server: which has what they hold.
        number: of the last round.

    Raises:
        MisuseError: a file's form cannot hold an array.
        StorageError: one cannot be written.
    """
    state = server.rule_state
    if file.save_model:
        save_state(file.save_model, state)
        save_model(file.save_model, server.model)
    if file.save_update and server.last_sum is not None:
        whose, update = server.last_sum  # no block can have the names of the two numbers
        numbers = {"number": np.array(whose.number), "clients": np.array(whose.clients)}
        save_model(file.save_update, numbers | {f"update/{name}": array for name, array in update.items()})
    if file.checkpoints:
        form = ModelForm[file.checkpoint_format.upper()]
        checkpoint(file.checkpoints, number, server.model, form, keep=file.checkpoints_kept, state=state)
