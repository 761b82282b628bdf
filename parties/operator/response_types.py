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
    "BlobsView",
    "ClientRow",
    "ClientsPage",
    "Drawing",
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

VERSION: Final = 4

MOST_ROUNDS: Final = 1000
"""The most rounds in one answer; earlier rounds are requested page by page."""

AnswerT = TypeVar("AnswerT")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, lt=2**36)]
Moment = Annotated[float, msgspec.Meta(ge=0, lt=2**36)]
"""Seconds since 1970, up to the year 4147, which the libraries can convert to a date in any time zone."""


class Versioned(TypedDict):
    """The part that every answer but a refusal has."""

    version: Literal[4]


class TimesView(TypedDict):
    """A round's time in seconds, by what the server did; see `parties.status.RoundTimes`."""

    collecting: Seconds
    computing: Seconds
    waiting: Seconds
    interrupted: Seconds


class RunningView(TypedDict):
    """A running round: its step (collect or compute) and since when; and its machine's state."""

    number: Count
    round_id: str
    fingerprint: str
    protocol: str
    step: Literal["collect", "compute"]
    since: Moment
    activity: Literal["collecting", "computing", "waiting"]
    state: str
    times: TimesView
    evaluating: Seconds
    opened_at: Moment
    closes_at: Moment | None
    submissions: Count
    evaluated: Count
    retrievals: Count
    minimum: Count
    maximum: Count
    waiting_for: str


class RoundCounts(TypedDict):
    """How many rounds there have been."""

    done: Count
    aborted: Count


class NoteView(TypedDict):
    """What a part of the server tells; see `parties.status.Note`."""

    title: str
    text: str
    more: str
    poor: bool
    figures: dict[str, float]


class ServerView(TypedDict):
    """One of the two servers, as the task file names it; `key` is the fingerprint of its key for statements."""

    name: str
    here: bool
    operator: str
    address: str
    release: str
    key: str


class PeerView(TypedDict):
    """The other server, and whether it says the same as this one: null where it has not said it since it connected."""

    name: str
    connected: bool
    same_task: bool | None
    same_model: bool | None
    same_release: bool | None


class FingerprintsView(TypedDict):
    """Fingerprints that are the same on both servers: of the task, and of the model as it stands."""

    task: str
    model: str


class ClientCounts(TypedDict):
    """How many clients are known and connected, with how many connections, and have submitted in the running round."""

    known: Count
    connected: Count
    connections: Count
    submitted: Count


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


class BlobsView(TypedDict):
    """Where bulk is, and how much of it; see `parties.status.BlobsStatus`."""

    where: str
    stored_bytes: Count
    free_bytes: Count | None
    to_erase: Count


class WorkerView(TypedDict):
    """A worker; see `parties.status.WorkerStatus`."""

    name: str
    host: str
    adding: Count
    held: Count


class EngineView(TypedDict):
    """What computes rounds; see `parties.status.EngineStatus`."""

    engine: str
    where: str
    connected: bool
    workers: list[WorkerView]
    waiting: Count
    open: Count
    sealed: Count
    given_again: Count
    bytes_taken: Count


class StatusView(Versioned):
    """A server's status; `engine` is null where it computes itself."""

    server: str
    task: str
    time: Moment
    started_at: Moment
    stage: Literal["preparing", "drawing", "running", "resting", "away"]
    number: Count
    asked: Count
    waiting_for: str
    round: RunningView | None
    last: SummaryView | None
    rounds: RoundCounts
    notes: list[NoteView]
    servers: Annotated[list[ServerView], msgspec.Meta(min_length=2, max_length=2)]
    peer: PeerView
    fingerprints: FingerprintsView
    clients: ClientCounts
    memory: MemoryView
    blobs: BlobsView | None
    engine: EngineView | None
    lag_seconds: float
    log_level: str
    troubles: list[ProblemView]


class SummaryView(TypedDict):
    """A settled round in brief, without names."""

    number: Count
    protocol: str
    ended: Literal["done", "aborted", "refused"]
    aborted: str
    refused: str
    counted: Count
    not_counted: dict[str, Count]
    opened_at: Moment
    settled_at: Moment
    seconds: Seconds
    times: TimesView
    evaluating: Seconds


class RoundsView(Versioned):
    """Settled rounds, the oldest first."""

    rounds: list[SummaryView]


class RoundView(SummaryView, Versioned):
    """A settled round with all clients' names."""

    round_id: str
    clients: list[str]
    excluded: dict[str, str]
    model: dict[str, str]


class ClientRow(TypedDict):
    """A client: how many connections it has, and whether it may take part in the running round and has submitted."""

    name: str
    connections: Count
    drawn: bool
    submitted: bool


class ClientsPage(Versioned):
    """One page of the known clients, by name; `counts` are of all of them, `matching` of those that were asked for."""

    round: Count | None
    counts: dict[str, Count]
    matching: Count
    page: Count
    pages: Count
    clients: list[ClientRow]


class Aborting(Versioned):
    """A round is being aborted."""

    number: Count
    because: str


class Closing(Versioned):
    """A round is closed with the submissions that it has at this server."""

    number: Count
    submissions: Count


class Drawing(Versioned):
    """It is drawn who takes part in a round, of the clients that have asked this server."""

    number: Count
    asked: Count


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
