"""What a server says of its tasks in the handshake, before it knows who asks.

A server whose file has one task shows the task's digest. One that may have several shows a salt and marks, however many
it has now:

    salt (16) ‖ 30 marks of 16 bytes, sorted        a mark: the first bytes of the task's digest, hashed with the salt

Rules: who has a task's file finds out whether it is served, from either form; who has not learns nothing of a task from
marks, neither what it is nor, because the places that are left over hold random bytes, how many there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from fsl_async.digests import DIGEST_BYTES, Domain, digest, same
from fsl_async.randomness import Randomness

__all__ = ["MOST_TASKS", "are_marks", "served", "serves"]

MOST_TASKS: Final = 30
"""So many marks, and as many tasks, has a server at most."""

MARK_BYTES: Final = 16
MARKS_BYTES: Final = MARK_BYTES * (1 + MOST_TASKS)


def served(tasks: Collection[bytes], randomness: Randomness) -> bytes:
    """The payload of a server that may have several tasks, and has those of these digests now."""
    salt = randomness(MARK_BYTES)
    marks = [_mark(salt, task) for task in tasks]
    marks += [randomness(MARK_BYTES) for _ in range(MOST_TASKS - len(marks))]
    return b"".join([salt, *sorted(marks)])


def serves(payload: bytes, task: bytes) -> bool:
    """Whether the server that shows this payload serves the task of that digest."""
    if are_marks(payload):
        mark = _mark(payload[:MARK_BYTES], task)
        return mark in {payload[at : at + MARK_BYTES] for at in range(MARK_BYTES, MARKS_BYTES, MARK_BYTES)}
    return same(payload, task)


def are_marks(payload: bytes) -> bool:
    """Whether a payload has the form of a server with several tasks."""
    return len(payload) == MARKS_BYTES != DIGEST_BYTES


def _mark(salt: bytes, task: bytes) -> bytes:
    return digest(Domain.SERVED, task, key=salt)[:MARK_BYTES]
