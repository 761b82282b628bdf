"""What the rows of a sequence chart show, whether they are drawn as text or as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["Arrow", "Look", "Mark", "Row"]


class Look(Enum):
    """What kind of thing a mark tells; its value is the sign that stands for it in text."""

    ROUND = "◆"
    STATE = "·"
    FAULT = "!"
    DEATH = "×"
    BIRTH = "○"
    PEOPLE = "•"


@dataclass(frozen=True)
class Arrow:
    """A message: who sends whom what, and how many bytes of it."""

    sender: str
    receiver: str
    label: str
    size: int


@dataclass(frozen=True)
class Mark:
    """Something that happens to one party."""

    party: str
    look: Look
    words: str


@dataclass(frozen=True)
class Row:
    """One row of a chart.

    Attributes:
        at: seconds since the world began.
        number: of the round that it is about; 0: of none.
        running: whose processes run, after this.
        drawn: what stands in it.
    """

    at: float
    number: int
    running: frozenset[str]
    drawn: Arrow | Mark

    @property
    def parties(self) -> tuple[str, ...]:
        """Whose lines it touches."""
        drawn = self.drawn
        return (drawn.sender, drawn.receiver) if isinstance(drawn, Arrow) else (drawn.party,)
