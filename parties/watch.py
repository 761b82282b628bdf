"""The tap on every message that a party sends: transcripts, figures and tests listen here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from fsl_async.wire.codec import Message

Watch: TypeAlias = Callable[[str, str, Message, int], None]
"""Hears of every message sent: sender, receiver, message, bytes of bulk."""


@dataclass(frozen=True)
class Note:
    """One message of a transcript: who sent whom what, and how much bulk data with it."""

    sender: str
    receiver: str
    message: Message
    bulk: int

    def __str__(self) -> str:
        return f"{self.sender} → {self.receiver}: {type(self.message).__name__} (+{self.bulk:,} bytes)"


def silent(sender: str, receiver: str, message: Message, bulk: int) -> None:
    """The tap that ignores what it hears."""
