"""The tap on every message that a party sends: transcripts, figures and tests listen here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from fsl_async.wire.messages import Message

Watch: TypeAlias = Callable[[str, str, Message, int], None]
"""Hears of every message sent: sender, receiver, message, bytes of bulk."""


def silent(sender: str, receiver: str, message: Message, bulk: int) -> None:
    """The tap that ignores what it hears."""
