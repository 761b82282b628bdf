"""The events by which a round ends, whichever protocol it runs."""

from __future__ import annotations

from typing import ClassVar

from fsl_async.protocols.machine import Event, PeerEvent


class CloseRound(Event, frozen=True, tag="CloseRound"):
    """The deadline has passed, the operator says so, or every expected client has submitted."""


class GaveUp(Event, frozen=True, tag="GaveUp"):
    """This server aborts the round: its operator asked for it, or the agreed time is over."""

    explanation: str


class PeerConclusion(PeerEvent, frozen=True, tag="PeerConclusion"):
    """The digest of the peer's outcome."""

    said: ClassVar[str] = "conclusion"
    outcome: bytes

    def content(self) -> bytes:
        """The digest."""
        return self.outcome


class PeerAbort(Event, frozen=True, tag="PeerAbort"):
    """The peer has aborted the round."""

    explanation: str
