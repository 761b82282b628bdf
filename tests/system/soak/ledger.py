"""What a client notes of its own doings, so that somebody else can check afterwards what became of them.

A ledger is a file of one JSON object a line. Each entry is on disk before its writer goes on, so whatever a killed
client did is preceded by what it wrote; a last line that was cut off in the middle is no entry.
"""

import os
import time
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec


class _Entry(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at: float = msgspec.field(default_factory=time.time)


class Began(_Entry, frozen=True, kw_only=True):
    """The process started."""

    pid: int


class Touched(msgspec.Struct, frozen=True):
    """What an update does to one block, in whole units: to some rows of a sparse block, to all of a dense one."""

    values: list[list[int]]
    rows: list[int] | None


class Planned(_Entry, frozen=True, kw_only=True):
    """An update is about to be submitted; a number is never used for two."""

    update: int
    protocol: Literal["ssa", "psu"]
    blocks: dict[str, Touched]


class Sent(_Entry, frozen=True, kw_only=True):
    """A submission is about to be sent to one server; `content` is the digest it announces, if it announces one."""

    update: int
    server: str
    round_id: str
    content: str


class Acknowledged(_Entry, frozen=True, kw_only=True):
    """Both servers' receipts are here."""

    update: int
    number: int


class TurnedAway(_Entry, frozen=True, kw_only=True):
    """The update does not count, and will not unless it is submitted again; `again` tells whether it will be."""

    update: int
    explanation: str
    again: bool


class Told(_Entry, frozen=True, kw_only=True):
    """The round's outcome, as both servers signed it."""

    update: int
    number: int
    counted: bool
    reason: str
    participants: int


class Retrieved(_Entry, frozen=True, kw_only=True):
    """What was retrieved, in units."""

    number: int
    block: str
    rows: list[int] | None
    values: list[list[int]]


Entry: TypeAlias = Began | Planned | Sent | Acknowledged | TurnedAway | Told | Retrieved


class Ledger:
    """A ledger that is being written."""

    def __init__(self, path: Path) -> None:
        """Open it, and cut off a last line that is no entry."""
        self.entries = read_ledger(path)
        whole = path.read_bytes() if path.exists() else b""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.ftruncate(self._file, whole.rfind(b"\n") + 1)

    def note(self, entry: Entry) -> None:
        """Write an entry; it is on disk when this returns."""
        os.write(self._file, msgspec.json.encode(entry) + b"\n")
        os.fdatasync(self._file)
        self.entries.append(entry)


def read_ledger(path: Path) -> list[Entry]:
    """All entries of a ledger; none where there is no file yet."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line, type=Entry) for line in lines]
