"""What rounds of all protocols have in common: what a state tells of itself, what it sends, and how a round ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Literal, TypeAlias

from fsl_async.protocols.machine import Event, PeerEvent, State
from fsl_async.wire.messages import OfRound

Activity: TypeAlias = Literal["collecting", "computing", "waiting"]
"""What a server does with a round: it collects requests, computes, or waits for the other server."""


class Step(IntEnum):
    """What a server says of a round, in order."""

    NOTHING = 0
    TOSS_COMMITMENT = 1
    TOSS_REVEAL = 2
    ASKED = 3
    CLOSING = 4
    ROSTER = 5
    PROOFS = 6
    COUNTS = 7
    COMMITMENT = 8
    SHARE = 9
    CONCLUSION = 10


class RoundState(State, frozen=True):
    """A state of a round on one server. What a class does not say is so once a round is over.

    Attributes:
        activity: what the server does in it; None where the round is over.
        waits_for: what has to come before the round continues, for people; `{peer}` stands for the other server's name.
        said: the last word that the server has said to the other one.
        may_give_up: whether the peer has to send something first, and the round may still be aborted if it does not.
        reveals: whether something of the sum has been sent, or is about to be: this server's share of it or, where they
            are exchanged, of the counts of contributors. The first such state charges the round, and the others nothing
            more.
    """

    activity: ClassVar[Activity | None] = None
    waits_for: ClassVar[str] = ""
    said: ClassVar[Step] = Step.CONCLUSION
    may_give_up: ClassVar[bool] = False
    reveals: ClassVar[bool] = False


@dataclass(frozen=True)
class Stored:
    """Bulk data that the server has stored: its share of the sum or of the counts of contributors, by its digest."""

    kind: Literal["share", "counts"]
    name: bytes


@dataclass(frozen=True)
class Send:
    """Send a message to the peer."""

    message: OfRound
    bulk: bytes | Stored = b""


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
