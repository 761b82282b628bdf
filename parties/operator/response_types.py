"""The types of the operator port's answers: the server writes these, the commands read them.

What answers at an address may be another program, another release or an attacker. So an answer is validated before
anything of it is shown: counts must be in range, times must be dates, and the version must be the one that this release
knows. Additional fields of a later server are ignored.
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
    "TaskRow",
    "TasksView",
    "read_answer",
]

VERSION: Final = 1

MOST_ROUNDS: Final = 1000
"""The most rounds in one answer; earlier rounds are requested page by page."""

AnswerT = TypeVar("AnswerT")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=2**36)]
"""Seconds since 1970, up to the year 4147, which the libraries can convert to a date in any time zone."""


class Versioned(TypedDict):
    """The part that every answer but a refusal has."""

    version: Literal[1]


class RunningView(TypedDict):
    """A running round."""

    number: Count
    round_id: str
    protocol: str
    state: str
    opened_at: Moment
    closes_at: Moment | None
    submissions: Count
    evaluated: Count
    minimum: Count
    maximum: Count
    waiting_for: str


class RoundCounts(TypedDict):
    """How many rounds there have been."""

    done: Count
    aborted: Count


class PeerView(TypedDict):
    """The other server."""

    name: str
    connected: bool


class ClientsView(TypedDict):
    """The connected clients."""

    connected: Count
    known: Count
    names: list[str]


class MemoryView(TypedDict):
    """Memory in bytes: of the process, and of the budget for messages that are being read."""

    resident: Count
    budget_used: Count
    budget: Count


class ProblemView(TypedDict):
    """A problem that has occurred once or more often; see `parties.operator.recent_problems.Problem`."""

    about: str
    explanation: str
    level: str
    first_at: Moment
    last_at: Moment
    times: Count


class StatusView(Versioned):
    """A server's status."""

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
    troubles: list[ProblemView]


class SummaryView(TypedDict):
    """A settled round in brief, without names."""

    number: Count
    protocol: str
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
    """A settled round with all clients' names."""

    round_id: str
    clients: list[str]
    excluded: dict[str, str]
    model: dict[str, str]


class Aborting(Versioned):
    """A round is being aborted."""

    number: Count
    because: str


class LogLevel(Versioned):
    """The log level from now on."""

    level: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,16}$")]


class TaskRow(TypedDict):
    """A task of a server's process; see `parties.status.TaskState` and `TaskStanding`."""

    name: str
    digest: str
    state: Literal["starting", "running", "draining", "drained", "over", "failed"]
    explanation: str
    round: Count | None
    round_state: str
    clients_connected: Count
    peer_connected: bool
    rounds_done: Count
    rounds_aborted: Count
    store: str


class TasksView(Versioned):
    """The tasks of a server's process, in the order of its file."""

    server: str
    tasks: list[TaskRow]


class Refusal(TypedDict):
    """Why a request was refused."""

    error: Annotated[str, msgspec.Meta(min_length=1)]


def read_answer(body: bytes | bytearray, kind: type[AnswerT]) -> AnswerT:
    """Read an answer; fields beyond those of its type are kept.

    Raises:
        ValueError: it is not of that type.
    """
    try:
        plain: Any = msgspec.json.decode(body)
        msgspec.convert(plain, kind)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error
    return plain  # type: ignore[no-any-return]  # validated by the line above
