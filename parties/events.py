"""What a server reports while it runs: one event for each thing that an operator may want to know.

Rules: an event holds the names of parties, rounds and kinds, and numbers; never a row, a value, a seed or a share.
Nothing here stores an event: `parties.operator` counts, logs and shows them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from parties.status import PastRound

__all__ = [
    "BudgetMoved",
    "ClientLeft",
    "ClientMet",
    "ClientsDrawn",
    "ConnectionFailed",
    "Enrolled",
    "Evaluated",
    "EvidenceKind",
    "MessageReceived",
    "MessageSent",
    "Observer",
    "PeerLost",
    "PeerMet",
    "PrivacyCharged",
    "RequestRefused",
    "Resumed",
    "Revoked",
    "RoundMoved",
    "RoundOpened",
    "RoundSettled",
    "ServerEvent",
    "SubmissionIn",
    "Violated",
    "Warned",
    "unobserved",
]


EvidenceKind: TypeAlias = Literal[
    "two-contents",
    "false-digest",
    "two-parts",
    "two-hints",
    "two-digests",
    "proof",
    "bound",
    "counts",
    "excess",
    "outcome",
    "violation",
]
"""How a party contradicted itself or broke the protocol; `parties.server.evidence.Evidence` explains each kind."""


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all events that a server reports."""


class RoundOpened(ServerEvent, frozen=True, kw_only=True):
    """Clients can submit until `closes_at`, in seconds since 1970; infinity: until enough have submitted."""

    number: int
    round_id: bytes
    protocol: str
    closes_at: float


class ClientsDrawn(ServerEvent, frozen=True, kw_only=True):
    """Of the clients that `asked` both servers, so many were `drawn` for the round, which opens for them."""

    number: int
    asked: int
    drawn: int


class RoundMoved(ServerEvent, frozen=True, kw_only=True):
    """The round's machine is in another state (see docs/machines.md)."""

    number: int
    state: str


class Resumed(ServerEvent, frozen=True, kw_only=True):
    """After a restart, the unfinished round resumes in this state."""

    number: int
    state: str


class SubmissionIn(ServerEvent, frozen=True, kw_only=True):
    """A client's submission is stored and on the round's list, which now has `total` entries."""

    number: int
    client: str
    total: int


class Evaluated(ServerEvent, frozen=True, kw_only=True):
    """A submission has been added to the sum, which took `seconds`; `total` submissions have been added so far.

    Where several are added at once, each has its part of the time that all of them took.
    """

    number: int
    client: str
    seconds: float
    total: int


class RequestRefused(ServerEvent, frozen=True, kw_only=True):
    """A client's request was refused; `reason` is one of those of `fsl_async.wire.messages.Refused`."""

    client: str
    reason: str
    explanation: str


class RoundSettled(ServerEvent, frozen=True, kw_only=True):
    """A round is over."""

    past: PastRound


class PrivacyCharged(ServerEvent, frozen=True, kw_only=True):
    """A round's share, with noise, is about to be sent: `rounds` rounds have now spent `epsilon` of the `budget`."""

    number: int
    rounds: int
    epsilon: float
    budget: float


class MessageSent(ServerEvent, frozen=True, kw_only=True):
    """A message was sent to a client or the other server: `kind` is its type, `size` its bytes before framing."""

    receiver: str
    kind: str
    size: int


class MessageReceived(ServerEvent, frozen=True, kw_only=True):
    """A message was received from a client or the other server: `kind` is its type, `size` its bytes before framing."""

    sender: str
    kind: str
    size: int


class ClientMet(ServerEvent, frozen=True, kw_only=True):
    """A client has connected."""

    client: str


class ClientLeft(ServerEvent, frozen=True, kw_only=True):
    """A client has disconnected."""

    client: str


class ConnectionFailed(ServerEvent, frozen=True, kw_only=True):
    """A connection from an address (`origin`) ended with an error: `kind` is the error's class."""

    origin: str
    kind: str
    explanation: str


class PeerMet(ServerEvent, frozen=True, kw_only=True):
    """The two servers are connected (again)."""


class PeerLost(ServerEvent, frozen=True, kw_only=True):
    """The two servers are no longer connected."""

    explanation: str


class Warned(ServerEvent, frozen=True, kw_only=True):
    """Something that an operator should look at, although the server continues."""

    about: str
    explanation: str


class Enrolled(ServerEvent, frozen=True, kw_only=True):
    """A client has been enrolled; `key` is the beginning of its channel key, which is enough to revoke it."""

    client: str
    key: str


class Revoked(ServerEvent, frozen=True, kw_only=True):
    """A client has been removed from the registry."""

    client: str


class Violated(ServerEvent, frozen=True, kw_only=True):
    """A party broke the protocol, and the evidence of it is stored."""

    number: int
    about: str
    kind: EvidenceKind
    explanation: str


class BudgetMoved(ServerEvent, frozen=True, kw_only=True):
    """`used` of the `limit` bytes of the memory budget for messages are now taken."""

    used: int
    limit: int


Observer: TypeAlias = Callable[[ServerEvent], None]
"""Receives every event, in the order in which they happen.

It is called in the middle of the server's work: it must return at once, and must not raise.
"""


def unobserved(event: ServerEvent) -> None:
    """An observer that ignores every event."""
