"""What a server reports while it runs: one event for each thing that an operator may want to know.

Rules: an event holds the names of parties, rounds and kinds, and numbers; never a row, a value, a seed or a share. It
says itself how it is logged, counted and shown: of the packages a new one touches this file and the one that sends it.
The type of a field is one of those below, and chooses its guard and its form in the log. Nothing here stores an event:
`parties.operator` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec

from parties.status import PastRound

Name: TypeAlias = Annotated[str, "name"]
Text: TypeAlias = Annotated[str, "text"]
Number: TypeAlias = Annotated[int, "number"]
Amount: TypeAlias = Annotated[float, "number"]
Seconds: TypeAlias = Annotated[float, "seconds"]
Moment: TypeAlias = Annotated[float, "moment"]
"""Seconds since 1970."""

RoundId: TypeAlias = Annotated[bytes, "identifier"]

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


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True, rename={"number": "round"}):
    """The base of all events that a server reports; in the log, a field has the name under which it is encoded.

    Attributes:
        words: the text of its line in the log.
        level: that line's level, and its problem's.
        audit: whether the line belongs to the audit, which is written at every level.
        counter: the metric that counts it, if there is one: its name, its text, and the field that is its label or "".
        problem: the name and the explanation of the problem that it reports, made of its fields, if it reports one.
    """

    words: ClassVar[str]
    level: ClassVar[Literal["debug", "info", "warning", "error"]] = "info"
    audit: ClassVar[bool] = False
    counter: ClassVar[tuple[str, str, str] | None] = None
    problem: ClassVar[tuple[str, str] | None] = None


class RoundOpened(ServerEvent, frozen=True, kw_only=True):
    """Clients can submit until `closes_at`, in seconds since 1970; infinity: until enough have submitted."""

    words = "round opened"
    number: Number
    round_id: RoundId
    protocol: Text
    closes_at: Moment


class ClientsDrawn(ServerEvent, frozen=True, kw_only=True):
    """Of the clients that `asked` both servers, so many were `drawn` for the round, which opens for them."""

    words = "clients drawn"
    number: Number
    asked: Number
    drawn: Number


class RoundMoved(ServerEvent, frozen=True, kw_only=True):
    """The round's machine is in another state (see docs/machines.md)."""

    words = "round moved"
    number: Number
    state: Text


class Resumed(ServerEvent, frozen=True, kw_only=True):
    """After a restart, the unfinished round resumes in this state."""

    words = "round resumed after a restart"
    level = "warning"
    counter = ("fsl_rounds_resumed", "Rounds that went on after a restart.", "")
    number: Number
    state: Text


class SubmissionIn(ServerEvent, frozen=True, kw_only=True):
    """A client's submission is stored and on the round's list, which now has `total` entries."""

    words = "submission in"
    level = "debug"
    counter = ("fsl_submissions", "Submissions stored.", "")
    number: Number
    client: Name
    total: Number


class Evaluated(ServerEvent, frozen=True, kw_only=True):
    """A submission has been added to the sum, which took `seconds`; `total` submissions have been added so far.

    Where several are added at once, each has its part of the time that all of them took.
    """

    words = "submission evaluated"
    level = "debug"
    number: Number
    client: Name
    seconds: Seconds
    total: Number


class RequestRefused(ServerEvent, frozen=True, kw_only=True):
    """A client's request was refused; `reason` is one of those of `fsl_async.wire.messages.Refused`."""

    words = "request refused"
    counter = ("fsl_requests_refused", "Requests not carried out.", "reason")
    problem = ("request refused ({reason})", "{client}: {explanation}")
    client: Name
    reason: Text
    explanation: Text


class RoundSettled(ServerEvent, frozen=True, kw_only=True):
    """A round is over."""

    past: PastRound


class PrivacyCharged(ServerEvent, frozen=True, kw_only=True):
    """A round's share, with noise, is about to be sent: `rounds` rounds have now spent `epsilon` of the `budget`."""

    words = "privacy budget charged"
    number: Number
    rounds: Number
    epsilon: Amount
    budget: Amount


class MessageSent(ServerEvent, frozen=True, kw_only=True, rename={"receiver": "party", "size": "bytes"}):
    """A message was sent to a client or the other server: `kind` is its type, `size` its bytes before framing."""

    words = "message sent"
    level = "debug"
    receiver: Name
    kind: Text
    size: Number


class MessageReceived(ServerEvent, frozen=True, kw_only=True, rename={"sender": "party", "size": "bytes"}):
    """A message was received from a client or the other server: `kind` is its type, `size` its bytes before framing."""

    words = "message received"
    level = "debug"
    sender: Name
    kind: Text
    size: Number


class ClientMet(ServerEvent, frozen=True, kw_only=True):
    """A client has connected."""

    words = "client connected"
    level = "debug"
    client: Name


class ClientLeft(ServerEvent, frozen=True, kw_only=True):
    """A client has disconnected."""

    words = "client left"
    level = "debug"
    client: Name


class ConnectionFailed(ServerEvent, frozen=True, kw_only=True):
    """A connection from an address (`origin`) ended with an error: `kind` is the error's class."""

    words = "connection failed"
    counter = ("fsl_connections_failed", "Connections that ended badly.", "kind")
    problem = ("connection failed ({kind})", "{origin}: {explanation}")
    origin: Name
    kind: Text
    explanation: Text


class PeerMet(ServerEvent, frozen=True, kw_only=True):
    """The two servers are connected (again)."""

    words = "peer connected"


class PeerLost(ServerEvent, frozen=True, kw_only=True):
    """The two servers are no longer connected."""

    words = "peer lost"
    level = "warning"
    counter = ("fsl_peer_lost", "Times the other server was lost.", "")
    problem = ("peer lost", "{explanation}")
    explanation: Text


class Warned(ServerEvent, frozen=True, kw_only=True):
    """Something that an operator should look at, although the server continues."""

    words = "warning"
    level = "warning"
    counter = ("fsl_warnings", "Warnings.", "about")
    problem = ("{about}", "{explanation}")
    about: Text
    explanation: Text


class Enrolled(ServerEvent, frozen=True, kw_only=True):
    """A client has been enrolled; `key` is the beginning of its channel key, which is enough to revoke it."""

    words = "client enrolled"
    audit = True
    counter = ("fsl_clients_enrolled", "Clients enrolled.", "")
    client: Name
    key: Text


class Revoked(ServerEvent, frozen=True, kw_only=True):
    """A client has been removed from the registry."""

    words = "client revoked"
    audit = True
    counter = ("fsl_clients_revoked", "Clients revoked.", "")
    client: Name


class Violated(ServerEvent, frozen=True, kw_only=True, rename={"number": "round", "about": "party"}):
    """A party broke the protocol, and the evidence of it is stored."""

    words = "protocol violated"
    level = "error"
    audit = True
    counter = ("fsl_violations", "Violations of the protocol.", "kind")
    problem = ("{about} broke the protocol ({kind})", "{explanation}")
    number: Number
    about: Name
    kind: Annotated[EvidenceKind, "text"]
    explanation: Text


class BudgetMoved(ServerEvent, frozen=True, kw_only=True, rename={"used": "bytes"}):
    """`used` of the `limit` bytes of the memory budget for messages are now taken."""

    words = "memory budget"
    level = "debug"
    used: Number
    limit: Number


Observer: TypeAlias = Callable[[ServerEvent], None]
"""Receives every event, in the order in which they happen.

It is called in the middle of the server's work: it must return at once, and must not raise.
"""


def unobserved(event: ServerEvent) -> None:
    """An observer that ignores every event."""
