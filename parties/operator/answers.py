"""The operator port's answers: the server makes these from its status; commands, the page and other programs read them.

Rules: clients appear by their public names, and only in the answers about clients and about a single round; nothing
here reaches a client; the version rises when a field changes its meaning or is removed. What answers at an address may
be another program, another release or an attacker. So an answer is validated before anything of it is shown: counts
must be in range, times must be dates, and the version must be the one that this release knows. Additional fields of a
later server are ignored.
"""

from __future__ import annotations

import math
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from parties.operator.log_fields import plain_text
from parties.operator.observer import OperatorObserver, Place
from parties.operator.overview import OperatedProcess, OperatedTask
from parties.operator.recent_problems import Problem
from parties.status import Count, HostedTaskStatus, Moment, PastRound, RoundStatus, RoundSummary, ServerStatus

Version: TypeAlias = Literal[5]
VERSION: Final = 5

MOST_ROUNDS: Final = 1000
"""The most rounds in one answer; earlier rounds are requested page by page."""

CLIENTS_PER_PAGE = 40

Shown: TypeAlias = Literal["all", "submitted", "missing", "connected"]
SHOWN: Final[tuple[Shown, ...]] = ("all", "submitted", "missing", "connected")
"""Which of the known clients are asked for."""

AnswerT = TypeVar("AnswerT")


class Attention(msgspec.Struct, frozen=True, kw_only=True):
    """Something that waits or is gone, so that a person must look: the first thing that page and terminal show.

    Attributes:
        about: what it is, in a few words.
        since: since when, in seconds since 1970; None where that is not known.
        text: what waits for what.
        remedy: what to do.
        page: the page of the documentation that says more, and the section on it.
        poor: whether clients are kept waiting by it.
    """

    about: str
    since: Moment | None
    text: str
    remedy: str
    page: str
    poor: bool


class StatusAnswer(ServerStatus, frozen=True, kw_only=True):
    """A server's status, and what its process knows besides.

    Attributes:
        attention: what a person must look at, the most urgent first.
        time: the server's clock.
        started_at: when it was started.
        places: what the task file says of S0 and S1.
        release: the release that it runs.
        clients_present: how many clients are connected, with one connection or several.
        resident_bytes: memory of its process.
        budget_used: bytes taken of the memory budget for messages that are being read.
        budget: that budget.
        lag_seconds: how late the event loop ran at worst.
        log_level: the lowest level that is logged.
        troubles: recent problems, the latest first.
    """

    version: Version
    attention: tuple[Attention, ...]
    time: Moment
    started_at: Moment
    places: tuple[Place, Place]
    release: str
    clients_present: Count
    resident_bytes: Count
    budget_used: Count
    budget: Count
    lag_seconds: float
    log_level: str
    troubles: tuple[Problem, ...]


class RoundsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Settled rounds, the oldest first."""

    version: Version
    rounds: tuple[RoundSummary, ...]


class RoundAnswer(RoundSummary, frozen=True, kw_only=True):
    """A settled round: who was counted, why others were not, and the digests of the model's blocks."""

    version: Version
    round_id: str
    clients: tuple[str, ...]
    excluded: dict[str, str]
    model: dict[str, str]


class Aborting(msgspec.Struct, frozen=True, kw_only=True):
    """A round is being aborted."""

    version: Version
    number: Count
    because: str


class Closing(msgspec.Struct, frozen=True, kw_only=True):
    """A round is closed with the submissions that it has at this server."""

    version: Version
    number: Count
    submissions: Count


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """It is drawn who takes part in a round, of the clients that have asked this server."""

    version: Version
    number: Count
    asked: Count


class LogLevel(msgspec.Struct, frozen=True, kw_only=True):
    """The log level from now on."""

    version: Version
    level: Annotated[str, msgspec.Meta(pattern="^[a-z]{1,16}$")]


class TaskRow(HostedTaskStatus, frozen=True, kw_only=True):
    """A task of a server's process, and its server in brief."""

    name: str
    round: Count | None
    round_state: str
    clients_connected: Count
    peer_connected: bool
    rounds_done: Count
    rounds_aborted: Count


class TasksAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks of a server's process, in the order of its file."""

    version: Version
    server: str
    tasks: tuple[TaskRow, ...]


class Refusal(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    error: Annotated[str, msgspec.Meta(min_length=1)]


def read_answer(body: bytes | bytearray, kind: type[AnswerT]) -> AnswerT:
    """Read an answer.

    Raises:
        ValueError: it is not of that type.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except RecursionError as error:
        raise ValueError("JSON that is nested too deep") from error


def status_answer(status: ServerStatus, observer: OperatorObserver) -> StatusAnswer:
    """A server's status."""
    used, budget = observer.budget
    blobs, engine = status.blobs, status.engine
    shown = msgspec.structs.replace(
        status,
        last=status.last and _discreet(status.last),
        blobs=blobs and msgspec.structs.replace(blobs, where=plain_text(blobs.where)),
        engine=engine and msgspec.structs.replace(engine, where=plain_text(engine.where)),
    )
    return StatusAnswer(
        **msgspec.structs.asdict(shown),
        version=VERSION,
        attention=tuple(attention_to(shown, observer.started_at)),
        time=observer.setup.clock(),
        started_at=observer.started_at,
        places=observer.setup.places,
        release=observer.setup.release,
        clients_present=len(observer.connected),
        resident_bytes=resident_bytes(),
        budget_used=used,
        budget=budget,
        lag_seconds=observer.lag.worst,
        log_level=observer.setup.log.level,
        troubles=tuple(observer.troubles()),
    )


def attention_to(status: ServerStatus, started_at: float) -> Iterator[Attention]:
    """What a person must look at, the most urgent first; a server that was never met is away since the start."""
    if status.held_up:
        yield Attention(
            about=f"{status.server} is held up",
            since=status.held_up_since,
            text=f"{_whatever_runs(status)} waits for {status.held_up}. Nothing that was acknowledged is lost.",
            remedy="Free some room, or bring it back; everything then goes on by itself.",
            page="operations.md, “A disk is full”",
            poor=True,
        )
    if status.stage == "away":
        yield Attention(
            about="Not served",
            since=None,
            text=f"This task is not served now: {plain_text(status.waiting_for) or 'its server has not begun'}.",
            remedy="Look at the last lines of the log; then start it.",
            page="exit-codes.md",
            poor=True,
        )
    elif not status.peer_connected and status.stage != "resting":
        planned = status.peer_stops_since is not None
        yield Attention(
            about=f"{status.peer} has stopped as planned" if planned else f"{status.peer} is not connected",
            since=status.peer_stops_since or status.peer_away_since or started_at,
            text=f"{_whatever_runs(status)} waits for it.{_without_peer(status)}",
            remedy="It goes on when its operator starts it again."
            if planned
            else "Look at the network, then call its operator.",
            page="operations.md, “S1 is down”",
            poor=not planned,
        )
    if (engine := status.engine) is not None and not (engine.connected and engine.workers):
        yield Attention(
            about="No worker is there" if engine.connected else "The cluster is not connected",
            since=None,
            text=f"Submissions are stored, and wait for a worker of {engine.where} to add them up.",
            remedy="Start the scheduler and its workers, or look at their logs.",
            page="cluster.md",
            poor=True,
        )
    yield from _ended_badly(status)


def _ended_badly(status: ServerStatus) -> Iterator[Attention]:
    """The last round, while nothing else runs if it was aborted, and until one is done if its sum was refused."""
    match status.last:
        case RoundSummary(ended="aborted") as last if status.round is None:
            about, remedy = f"Round {last.number} was aborted", "Clients enter the next round by themselves."
            section = "Abort a round"
        case RoundSummary(ended="refused") as last:
            about, remedy = f"The sum of round {last.number} was refused", "Call the other operator."
            section = "A sum was refused"
        case _:
            return
    yield Attention(
        about=about,
        since=last.settled_at,
        text=f"The model is unchanged: {last.explanation}.",
        remedy=remedy,
        page=f"operations.md, “{section}”",
        poor=last.ended == "refused",
    )


def _whatever_runs(status: ServerStatus) -> str:
    return f"Round {status.number}" if status.round else f"The opening of round {status.number}"


def _without_peer(status: ServerStatus) -> str:
    match status.round:
        case None:
            return ""
        case RoundStatus(state="Open"):
            return " Clients can go on, but without it the round has no sum."
        case _:
            return " If it is not back in time, the round is aborted, unless a share was committed to: then it waits."


def tasks_answer(operated: OperatedProcess) -> TasksAnswer:
    """The tasks of a process."""
    rows = tuple(_task_row(task) for task in operated.tasks())
    return TasksAnswer(version=VERSION, server=operated.process.name, tasks=rows)


def _task_row(task: OperatedTask) -> TaskRow:
    hosted, status = task.standing(), task.status()
    return TaskRow(
        **msgspec.structs.asdict(msgspec.structs.replace(hosted, explanation=plain_text(hosted.explanation))),
        name=task.name,
        round=status.round.number if status.round else None,
        round_state=status.round.state if status.round else status.waiting_for,
        clients_connected=status.clients_connected,
        peer_connected=status.peer_connected,
        rounds_done=status.rounds_done,
        rounds_aborted=status.rounds_aborted,
    )


def rounds_answer(past: Sequence[PastRound]) -> RoundsAnswer:
    """Settled rounds in brief, oldest first."""
    return RoundsAnswer(version=VERSION, rounds=tuple(_discreet(each.summary()) for each in past))


def round_answer(past: PastRound) -> RoundAnswer:
    """A settled round with all clients that were counted, and why others were not."""
    report = past.report
    return RoundAnswer(
        **msgspec.structs.asdict(_discreet(past.summary())),
        version=VERSION,
        round_id=report.round_id.hex(),
        clients=tuple(report.clients),
        excluded=dict(report.excluded),
        model={block.name: block.digest.hex() for block in report.model},
    )


def _discreet(past: RoundSummary) -> RoundSummary:
    return msgspec.structs.replace(past, explanation=plain_text(past.explanation))


def clients_page(
    known: Sequence[str],
    submitted: frozenset[str],
    drawn: frozenset[str] | None,
    connected: Counter[str],
    number: int | None,
    *,
    show: Shown = "all",
    search: str = "",
    page: int = 1,
) -> dict[str, Any]:
    """One page of the clients that a server knows, by name; `counts` are of all, `matching` of those asked for.

    Args:
        known: their names, sorted.
        submitted: those whose submission is in the running round.
        drawn: those who may take part in the running round; None: all of them.
        connected: by client, the number of its connections.
        number: of the running round; None where none runs.
        show: which of them are asked for.
        search: a part of the names that are asked for, in any case.
        page: from 1; beyond the last one it is the last one.
    """
    part = search.casefold()
    groups: dict[str, Sequence[str]] = {
        "all": known,
        "submitted": [name for name in known if name in submitted],
        "missing": [name for name in known if name not in submitted and (drawn is None or name in drawn)],
        "connected": [name for name in known if name in connected],
    }
    found = [name for name in groups[show] if part in name.casefold()] if part else groups[show]
    pages = max(1, math.ceil(len(found) / CLIENTS_PER_PAGE))
    page = min(page, pages)
    first = (page - 1) * CLIENTS_PER_PAGE
    return {
        "version": VERSION,
        "round": number,
        "counts": {name: len(group) for name, group in groups.items()},
        "matching": len(found),
        "page": page,
        "pages": pages,
        "clients": [
            {
                "name": name,
                "connections": connected.get(name, 0),
                "drawn": drawn is None or name in drawn,
                "submitted": name in submitted,
            }
            for name in found[first : first + CLIENTS_PER_PAGE]
        ],
    }


def resident_bytes() -> int:
    """Resident memory of this process in bytes; its peak, if the system does not report the present figure."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
