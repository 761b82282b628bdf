"""The rows of a sequence chart, independent of how they are drawn, and short texts that cannot spoil a line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Look(Enum):
    """The kind of a mark; its value is the character for it in text."""

    ROUND = "◆"
    STATE = "·"
    FAULT = "!"
    DEATH = "×"
    BIRTH = "○"
    PEOPLE = "•"


@dataclass(frozen=True)
class Arrow:
    """A message: its sender, its receiver, its label, its size in bytes, and whether it was lost on its way."""

    sender: str
    receiver: str
    label: str
    size: int
    lost: bool = False


@dataclass(frozen=True)
class Mark:
    """Something that happens to one party."""

    party: str
    look: Look
    text: str


@dataclass(frozen=True)
class Row:
    """One row of a chart.

    Attributes:
        at: seconds since the world began.
        number: the number of the round that it concerns; 0 if none.
        running: the parties whose processes run after it.
        drawn: what is drawn in it.
    """

    at: float
    number: int
    running: frozenset[str]
    drawn: Arrow | Mark

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties whose lines it touches."""
        drawn = self.drawn
        return (drawn.sender, drawn.receiver) if isinstance(drawn, Arrow) else (drawn.party,)


def size_text(size: int) -> str:
    """A number of bytes, as text with two or three digits."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if size >= unit:
            return f"{size / unit:.0f} {name}" if size >= 100 * unit else f"{size / unit:.1f} {name}"
    return f"{size} B"


def plain(text: str) -> str:
    """Text without line ends and control characters, because text from peers may contain anything."""
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def cut(text: str, room: int) -> str:
    """The beginning of a text, at most `room` characters long and without control characters."""
    return plain(text if len(text) <= room else f"{text[: max(room - 1, 0)]}…")
