"""What happened in a world, as one list: messages, events of servers, faults that struck, and lives of processes.

Entries of the same instant of virtual time are in the order in which they happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from parties.events import ServerEvent
from parties.simulation.network import Note
from parties.testing.faults import Fault

__all__ = ["Began", "Entry", "Failed", "Killed", "Left", "StoryEvent"]


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


StoryEvent: TypeAlias = Note | ServerEvent | Fault | Began | Killed | Failed | Left


class Entry(NamedTuple):
    """An event, the seconds since the world began, and the party that it concerns; of a message, its sender."""

    at: float
    party: str
    event: StoryEvent
