"""The states of a round of retrievals on one server, in order, and the event that is its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from fsl_async.protocols.ending import (
    CloseRound,
    GaveUp,
    PeerAbort,
    PeerConclusion,
    RoundState,
    Step,
)
from fsl_async.protocols.machine import PeerEvent

Heard: TypeAlias = dict[str, bytes]
"""By what it was, the digest of what the peer has said."""


@dataclass(frozen=True)
class Terms:
    """What is fixed for the whole round; `outcome` is the digest of the only outcome that it can have."""

    round_id: bytes
    server: int
    outcome: bytes

    @property
    def peer(self) -> str:
        """The other server's name."""
        return f"S{1 - self.server}"


# ---- states


class Open(RoundState, frozen=True, tag="Open"):
    """Clients retrieve."""

    activity = "collecting"
    waits_for = "the end of its time"
    said = Step.TOSS_REVEAL


class Closed(RoundState, frozen=True, tag="Closed"):
    """We answer no further retrieval, and have said so; the peer's word is awaited."""

    activity = "waiting"
    waits_for = "{peer} to close it, too"
    said = Step.CLOSING
    may_give_up = True


class Concluded(RoundState, frozen=True, tag="Concluded"):
    """Both have closed; our outcome is sent, the peer's is awaited. This server cannot abandon the round any more."""

    activity = "waiting"
    waits_for = "{peer}'s outcome"
    said = Step.CONCLUSION

    heard: Heard


class Done(RoundState, frozen=True, tag="Done"):
    """Both servers know that the round is over."""

    heard: Heard


class Aborted(RoundState, frozen=True, tag="Aborted"):
    """Aborted before both had closed."""

    explanation: str


Round: TypeAlias = Open | Closed | Concluded | Done | Aborted


def heard_in(state: Round) -> Heard:
    """What the peer has said, as far as the state still knows it."""
    match state:
        case Concluded() | Done():
            return state.heard
        case _:
            return {}


# ---- events


class PeerClosed(PeerEvent, frozen=True, tag="PeerClosed"):
    """The peer answers no further retrieval."""

    said: ClassVar[str] = "closing"

    def content(self) -> bytes:
        """Nothing: it can only be said in one way."""
        return b""


RoundEvent: TypeAlias = CloseRound | GaveUp | PeerClosed | PeerConclusion | PeerAbort
