"""Who takes part in a round, how often, and what clients learn of each other.

A task may let only some of the clients that ask take part in a round. Who is drawn follows from the round's secret of
both servers alone: each client has a rank that nobody can foresee or choose, and the lowest ranks are drawn. So both
servers draw the same clients, and every client that asked is as likely to be drawn as any other.

Source: McMahan, Moore, Ramage, Hampson, Agüera y Arcas 2017 (the server selects a random fraction of the clients).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from math import ceil
from typing import Final, TypeVar

import msgspec

from fsl_async.blocks import check_range
from fsl_async.digests import Domain, digest
from fsl_async.errors import MisuseError
from fsl_async.options.fields import Only, ProtocolName, TaskFields, check_choices, check_only
from fsl_async.wire.peer_lists import pack_names

FIELDS: Final = ("min_clients", "max_clients", "sample", "retrievals", "participants")

AnyTask = TypeVar("AnyTask", bound=TaskFields)

LARGEST_CLIENTS = 1_000_000
LARGEST_NAMED = 10_000
"""Clients of a task that tells each of them the names of all: the answers together grow with their square."""
LARGEST_RETRIEVALS = 1_000
ORDINARY_QUORUM = 16

ONLY: Final[Mapping[ProtocolName, Only]] = {
    "psr": {
        "min_clients": (None, "rounds of this protocol end by time alone; leave min_clients out"),
        "sample": (None, "rounds of this protocol take no submissions; leave sample out"),
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


def without_a_draw(task: AnyTask) -> AnyTask:
    """The same task, in which every client that asks takes part."""
    return msgspec.structs.replace(task, sample=None)


def size_of(sample: float, asked: int, most: int) -> int:
    """How many clients are drawn of those that asked.

    Args:
        sample: a whole number of clients; or a fraction, above 0 and at most 1, of those that asked, rounded up.
        asked: how many asked.
        most: how many the task admits to a round.
    """
    wanted = sample if isinstance(sample, int) else ceil(Fraction(str(sample)) * asked)  # 0.1 of 30 is 3, not 4
    return min(wanted, asked, most)


def secret_of(proof_key: bytes) -> bytes:
    """The round's secret of both servers by which clients are ranked; no client ever learns it."""
    return digest(Domain.SAMPLE_KEY, proof_key)


def drawn_of(asked: Collection[str], size: int, secret: bytes) -> tuple[str, ...]:
    """The clients that are drawn, sorted."""
    return tuple(sorted(sorted(asked, key=lambda name: digest(Domain.SAMPLE_RANK, secret, name.encode()))[:size]))


def sample_digest(drawn: Collection[str], secret: bytes) -> bytes:
    """What names a sample in public; without the secret, nobody can find out by trying whose names are in it."""
    return digest(Domain.SAMPLE, secret, pack_names(drawn))
