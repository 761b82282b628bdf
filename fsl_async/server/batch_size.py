"""How many submissions a server adds at once: as many as wait, up to what this module says.

Bounded by memory, and by work: whoever waits for one batch, be it a client of another task of the same process, waits
no longer than its threads need for about 60 ms of work each.
"""

from __future__ import annotations

from collections.abc import Iterable

from fsl_async.bounds import private_bytes
from fsl_async.geometry import Forest
from fsl_async.server.batch import LEAVES_PER_JOB
from fsl_async.server.jobs import work_of
from fsl_async.task import Task
from fsl_async.wire.public_part import Layout, Trees, dense_bytes, forests_of

__all__ = ["BATCHES", "at_once", "held_bytes"]

BLOCK_BYTES = 16

MOST_SUBMISSIONS = 64
"""More of them at once gain nothing: they already share the waiting of threads for one another."""

MOST_BYTES = 32 << 20
"""Memory for the submissions of one batch, unless a single one takes more."""

BATCHES = 2
"""In memory at a time: one that is added, and the next one, which is read meanwhile; of single submissions only one."""


def at_once(shape: Task, threads: int) -> int:
    """The most submissions of a round that are added at once.

    Args:
        shape: the round's task, with its blocks as they are in the round.
        threads: how many jobs run at a time.
    """
    work = sum(work_of(forest) for _, forest in forests_of(shape))
    return max(1, min(_fitting(shape), threads * LEAVES_PER_JOB // max(1, work)))


def held_bytes(shape: Task) -> int:
    """The most memory that submissions take on their way into the sum, with whatever is derived from them."""
    fitting = _fitting(shape)
    return (BATCHES * fitting if fitting > 1 else 1) * _submission_bytes(shape)


def _fitting(shape: Task) -> int:
    return min(MOST_SUBMISSIONS, MOST_BYTES // _submission_bytes(shape))


def _submission_bytes(shape: Task) -> int:
    """A submission with its dense share, as it came and as elements, and what is derived from it."""
    bulk = Layout.submission(shape, Trees.OWN).size + private_bytes(shape) + 2 * dense_bytes(shape)
    return bulk + BLOCK_BYTES * _blocks(forest for _, forest in forests_of(shape))


def _blocks(forests: Iterable[Forest]) -> int:
    """Roots, proofs, hints in planes and totals of every tree, and a mask for every leaf of a tree."""
    return sum(forest.trees * (2 + 2 * forest.planes) + forest.leaves for forest in forests)
