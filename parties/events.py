"""What a server tells whoever operates it: what happens, as it happens, and how it stands when asked.

Rules: a happening names parties, rounds, kinds and numbers; never a row, a value, a seed or a share. Nobody here keeps
anything: `parties.operator` counts, logs and shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import msgspec

from parties.outcome import RoundReport

__all__ = [
    "BudgetMoved",
    "ClientLeft",
    "ClientMet",
    "ConnectionFailed",
    "Enrolled",
    "Evaluated",
    "MessageReceived",
    "MessageSent",
    "Observe",
    "PastRound",
    "PeerLost",
    "PeerMet",
    "RequestRefused",
    "Resumed",
    "Revoked",
    "RoundMoved",
    "RoundOpened",
    "RoundSettled",
    "RoundStatus",
    "ServerEvent",
    "ServerStatus",
    "SubmissionIn",
    "Violated",
    "Warned",
    "unobserved",
]


class ServerEvent(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of all happenings."""


class RoundOpened(ServerEvent, frozen=True, kw_only=True):
    """Clients can submit; the round closes at `closes_at` (seconds since 1970; infinity: when enough are in)."""

    number: int
    round_id: bytes
    phase: str
    closes_at: float


class RoundMoved(ServerEvent, frozen=True, kw_only=True):
    """The round's machine is in another state (see docs/machines.md)."""

    number: int
    state: str


class Resumed(ServerEvent, frozen=True, kw_only=True):
    """After a restart, the round that was running goes on in this state."""

    number: int
    state: str


class SubmissionIn(ServerEvent, frozen=True, kw_only=True):
    """A client's submission is stored and on the round's list; `total` are."""

    number: int
    client: str
    total: int


class Evaluated(ServerEvent, frozen=True, kw_only=True):
    """A submission has been added to the sum, which took so many seconds; `total` are."""

    number: int
    client: str
    seconds: float
    total: int


class RequestRefused(ServerEvent, frozen=True, kw_only=True):
    """A client's request was not carried out; the reason is one of `messages.Refused`'s."""

    client: str
    reason: str
    explanation: str


class RoundSettled(ServerEvent, frozen=True, kw_only=True):
    """A round is over."""

    past: PastRound


class MessageSent(ServerEvent, frozen=True, kw_only=True):
    """A message went out, to a client or the other server; `kind` is its type, `size` its bytes before framing."""

    receiver: str
    kind: str
    size: int


class MessageReceived(ServerEvent, frozen=True, kw_only=True):
    """A message came in, from a client or the other server; `kind` is its type, `size` its bytes before framing."""

    sender: str
    kind: str
    size: int


class ClientMet(ServerEvent, frozen=True, kw_only=True):
    """A client has connected."""

    client: str


class ClientLeft(ServerEvent, frozen=True, kw_only=True):
    """A client's connection is over."""

    client: str


class ConnectionFailed(ServerEvent, frozen=True, kw_only=True):
    """A connection from an address ended badly: `kind` is the class of the error."""

    origin: str
    kind: str
    explanation: str


class PeerMet(ServerEvent, frozen=True, kw_only=True):
    """The two servers are connected (again)."""


class PeerLost(ServerEvent, frozen=True, kw_only=True):
    """The two servers are not connected any more."""

    explanation: str


class Warned(ServerEvent, frozen=True, kw_only=True):
    """Something that an operator should look at; nothing has stopped."""

    about: str
    explanation: str


class Enrolled(ServerEvent, frozen=True, kw_only=True):
    """A client is known from now on; `key` is the beginning of its channel key, by which it can be revoked."""

    client: str
    key: str


class Revoked(ServerEvent, frozen=True, kw_only=True):
    """A client is not known any more."""

    client: str


class Violated(ServerEvent, frozen=True, kw_only=True):
    """A party did something against the protocol; `kind` is one of `evidence.Kind`'s."""

    number: int
    about: str
    kind: str
    explanation: str


class BudgetMoved(ServerEvent, frozen=True, kw_only=True):
    """So many bytes of the memory budget for messages are taken, of so many there are."""

    used: int
    limit: int


Observe: TypeAlias = Callable[[ServerEvent], None]


def unobserved(happening: ServerEvent) -> None:
    """Hears nothing."""


class PastRound(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A settled round.

    Attributes:
        report: its public account.
        phase: main or union.
        opened_at: when it opened, in seconds since 1970; so is `settled_at`.
        evaluating: seconds of evaluation, all submissions together.
    """

    report: RoundReport
    phase: str
    opened_at: float
    settled_at: float
    evaluating: float

    @property
    def seconds(self) -> float:
        """How long it was open and worked on; 0 where the clock was put back meanwhile, and nobody knows."""
        return max(0.0, self.settled_at - self.opened_at)


class RoundStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The round that is running.

    Attributes:
        number: its number.
        round_id: its name in every message.
        phase: main or union.
        state: of its machine (see docs/machines.md).
        opened_at: when it opened, in seconds since 1970.
        closes_at: when it closes, likewise; infinity: when enough clients are in.
        submissions: on the list.
        evaluated: of them, already in the sum.
        minimum: how many are needed.
        maximum: how many end it at once.
        waiting_for: whom or what it waits for, in words; empty where it waits for nobody.
    """

    number: int
    round_id: bytes
    phase: str
    state: str
    opened_at: float
    closes_at: float
    submissions: int
    evaluated: int
    minimum: int
    maximum: int
    waiting_for: str


class ServerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a server stands.

    Attributes:
        server: 0 or 1.
        task: the task's name.
        peer_connected: whether the other server is connected.
        clients_connected: how many clients are.
        round: the running round; none while the next one's seed is tossed.
        waiting_for: whom or what the server waits for, in words.
        rounds_done: since the first start.
        rounds_aborted: likewise; those whose sum was refused are among them.
    """

    server: int
    task: str
    peer_connected: bool
    clients_connected: int
    round: RoundStatus | None
    waiting_for: str
    rounds_done: int
    rounds_aborted: int
