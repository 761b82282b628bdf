"""What an operator's port answers, as whoever asks it demands it: the server writes these, the commands read them.

What answers at an address may be another program, another release or nobody's friend. So an answer is read as what it
must be before anything is drawn of it: numbers that can be counted with, times that are dates, and the version that
this release knows. What a later server says besides is let through.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar

import msgspec

__all__ = [
    "MOST_ROUNDS",
    "VERSION",
    "Aborting",
    "LogLevel",
    "Refusal",
    "RoundView",
    "RoundsView",
    "RunningView",
    "StatusView",
    "SummaryView",
    "read_answer",
]

VERSION: Final = 1

MOST_ROUNDS: Final = 1000
"""In one answer; earlier ones are asked for page by page."""

AnswerT = TypeVar("AnswerT")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=2**36)]
"""Seconds since 1970, up to the year 4147: what the libraries can make a date of in any time zone."""


class Versioned(TypedDict):
    """What stands in every answer but a refusal."""

    version: Literal[1]


class RunningView(TypedDict):
    """A round that is not settled."""

    number: Count
    round_id: str
    phase: str
    state: str
    opened_at: Moment
    closes_at: Moment | None
    submissions: Count
    evaluated: Count
    minimum: Count
    maximum: Count
    waiting_for: str


class RoundCounts(TypedDict):
    """How many rounds there were."""

    done: Count
    aborted: Count


class PeerView(TypedDict):
    """The other server."""

    name: str
    connected: bool


class ClientsView(TypedDict):
    """Who is connected."""

    connected: Count
    known: Count
    names: list[str]


class MemoryView(TypedDict):
    """Bytes: of the process, and of messages that are being read."""

    resident: Count
    budget_used: Count
    budget: Count


class TroubleView(TypedDict):
    """Something that went wrong."""

    about: str
    explanation: str
    level: str
    first_at: Moment
    last_at: Moment
    times: Count


class StatusView(Versioned):
    """How a server stands."""

    server: str
    task: str
    time: Moment
    started_at: Moment
    waiting_for: str
    round: RunningView | None
    rounds: RoundCounts
    peer: PeerView
    clients: ClientsView
    memory: MemoryView
    lag_seconds: float
    log_level: str
    troubles: list[TroubleView]


class SummaryView(TypedDict):
    """A settled round in short."""

    number: Count
    phase: str
    aborted: str
    refused: str
    counted: Count
    not_counted: dict[str, Count]
    opened_at: Moment
    settled_at: Moment
    seconds: float
    evaluating: float


class RoundsView(Versioned):
    """Settled rounds, the oldest first."""

    rounds: list[SummaryView]


class RoundView(SummaryView, Versioned):
    """A settled round with everybody's name."""

    round_id: str
    clients: list[str]
    excluded: dict[str, str]
    model: dict[str, str]


class Aborting(Versioned):
    """A round is being given up."""

    number: Count
    because: str


class LogLevel(Versioned):
    """What is logged from now on."""

    level: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,16}$")]


class Refusal(TypedDict):
    """Why there is no other answer."""

    error: Annotated[str, msgspec.Meta(min_length=1)]


def read_answer(body: bytes | bytearray, kind: type[AnswerT]) -> AnswerT:
    """Read an answer; what it has besides what its kind has stays in it.

    Raises:
        ValueError: it is not of that kind.
    """
    try:
        plain: Any = msgspec.json.decode(body)
        msgspec.convert(plain, kind)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error
    return plain  # type: ignore[no-any-return]  # as it came, and it is of that kind by the line above
