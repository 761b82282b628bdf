"""What happened in a world, as one list: messages, what servers told, faults that struck, and lives of processes.

What happens in the same instant of virtual time stands in the order in which it happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from parties.events import ServerEvent
from parties.simulation.network import Note
from parties.testing.faults import Fault

__all__ = ["Began", "Entry", "Failed", "Killed", "Left", "Told"]


@dataclass(frozen=True)
class Began:
    """A process begins a life, of this number."""

    life: int


@dataclass(frozen=True)
class Killed:
    """A process dies; its next life begins after so many seconds, or never where they are infinite."""

    down: float


@dataclass(frozen=True)
class Failed:
    """A process ended by itself, with an error."""

    error: BaseException


@dataclass(frozen=True)
class Left:
    """A process has done what it had to do, and will not come again."""


Told: TypeAlias = Note | ServerEvent | Fault | Began | Killed | Failed | Left


class Entry(NamedTuple):
    """What happened, after how many seconds, and on whose part: of a message, its sender."""

    at: float
    party: str
    told: Told
