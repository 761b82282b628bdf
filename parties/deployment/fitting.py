"""What a server's file must say, and cannot say, by what the rounds of its task run."""

from __future__ import annotations

from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.files.models import load_model
from parties.outcome import Model
from parties.settings.party_file import RoundsTable, ServerFile

__all__ = ["check_rounds", "starting_model"]


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
