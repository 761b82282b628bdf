"""What happened in a world, as one list: messages, what parties told, faults that struck, and lives of processes.

Entries of the same instant of virtual time are in the order in which they happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from parties.watch import Note


@dataclass(frozen=True)
class Began:
    """A process starts the life of this number."""

    life: int


@dataclass(frozen=True)
class Killed:
    """A process is killed; its next life starts after `down` seconds, or never if that is infinite."""

    down: float


@dataclass(frozen=True)
class Failed:
    """A process has ended with an error, without being killed."""

    error: BaseException


@dataclass(frozen=True)
class Left:
    """A process has finished and will not be started again."""


@dataclass(frozen=True)
class Lost:
    """A message does not arrive: its connection broke, or its sender or receiver was killed."""

    note: Note


StoryEvent: TypeAlias = object
"""A `Note`, a fault, one of the classes above, or what a party told, which may be anything."""


class Entry(NamedTuple):
    """An event, the seconds since the world began, and the party that it concerns; of a message, its sender."""

    at: float
    party: str
    event: StoryEvent
