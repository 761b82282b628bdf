"""Who takes part in a round, how often, and what clients learn of each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from fsl_async.blocks import check_range
from fsl_async.errors import MisuseError
from fsl_async.options.fields import Only, ProtocolName, TaskFields, check_choices, check_only

FIELDS: Final = ("min_clients", "max_clients", "sample", "retrievals", "participants")

LARGEST_CLIENTS = 1_000_000
LARGEST_NAMED = 10_000
"""Clients of a task that tells each of them the names of all: the answers together grow with their square."""
LARGEST_RETRIEVALS = 1_000
ORDINARY_QUORUM = 16

ONLY: Final[Mapping[ProtocolName, Only]] = {
    "psr": {
        "min_clients": (None, "its rounds end when their time is over, however many clients come; leave it out"),
        "sample": (None, "a sample is of those whose submissions count, and its rounds take none; leave it out"),
    },
}


def check(task: TaskFields) -> None:
    """Check the fields of this topic, and complete `min_clients`."""
    check_choices(task, {"participants": ("count", "names")})
    check_only(task, "protocol", ONLY.get(task.protocol, {}))
    if task.min_clients is None and task.protocol != "psr":
        msgspec.structs.force_setattr(task, "min_clients", ORDINARY_QUORUM)
    if task.min_clients is not None:
        check_range("task", "min_clients", task.min_clients, 2, LARGEST_CLIENTS)
    check_range("task", "max_clients", task.max_clients, max(1, task.quorum), LARGEST_CLIENTS)
    check_range("task", "retrievals", task.retrievals, 1, LARGEST_RETRIEVALS)
    if task.participants == "names" and task.max_clients > LARGEST_NAMED:
        raise MisuseError(
            f'task: with participants="names" every client is told all names, so max_clients is at most '
            f'{LARGEST_NAMED:,}, not {task.max_clients:,}; use participants="count", which tells how many there '
            "were and proves to each client that it is one of them"
        )
    _check_sample(task)


def _check_sample(task: TaskFields) -> None:
    sample = task.sample
    if isinstance(sample, float):
        if not 0 < sample <= 1:
            raise MisuseError(f"task: a sample that is a fraction must be above 0 and at most 1, not {sample!r}")
    elif sample is not None:
        check_range("task", "sample", sample, max(1, task.quorum), task.max_clients)
