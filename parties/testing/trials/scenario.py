"""A trial: all that decides what happens in a simulated world, as a value that is printed, stored and shrunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from fsl_async import Task
from fsl_async.server import slicing
from fsl_async.server.slicing import LEAVES_OF_GROUP
from fsl_async.wire import pieces
from fsl_async.wire.pieces import LONGEST_PIECE
from parties.testing.round_faults import Fault

NAMES = ("anna", "ben", "carol", "dora", "emil")


LATE_FROM, MILLION = 500_000, 1_000_000
"""Some of what came later is drawn in the second half of each million seeds, so that the first half has its trials."""


def is_late(seed: int) -> bool:
    """Whether a seed is one of the second half of its million."""
    return seed % MILLION >= LATE_FROM


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A world without its faults.

    Attributes:
        task: its task.
        clients: how many there are.
        rounds: how many.
        seconds: how long a round is open.
        workers: how many workers compute for S0 and S1.
        worker_memory: bytes that each of these may use; 0 for any number.
        workers_answer: whether they answer retrievals, too.
        piece: bytes of the longest piece of a share, of which a small block has many only if they are short.
        group: leaves of a group of bins, likewise.
        computing: seconds that each piece of a party's heavy computation takes.
    """

    task: Task
    clients: int
    rounds: int
    seconds: float
    piece: int = LONGEST_PIECE
    computing: float = 0.0
    workers: tuple[int, int] = (0, 0)
    worker_memory: int = 0
    workers_answer: bool = False
    group: int = LEAVES_OF_GROUP


class Trial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that decides what happens in a world: the seed, the scenario and the plan of faults."""

    seed: int
    scenario: Scenario
    faults: tuple[Fault, ...]


@contextmanager
def in_pieces(scenario: Scenario) -> Iterator[None]:
    """Cut shares into pieces, and bins into groups, of the scenario's sizes."""
    before = pieces.LONGEST_PIECE, slicing.LEAVES_OF_GROUP
    pieces.LONGEST_PIECE, slicing.LEAVES_OF_GROUP = scenario.piece, scenario.group
    try:
        yield
    finally:
        pieces.LONGEST_PIECE, slicing.LEAVES_OF_GROUP = before
