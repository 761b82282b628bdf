"""The operator port's answers, made from a server's status: the same for the page, the terminal and other programs.

Rules: times are seconds since 1970, or null if there is none; clients appear by their public names, and only the view
of a single round has all of them; nothing here reaches a client; the version rises when a field changes its meaning or
is removed.
"""

from __future__ import annotations

import math
import resource
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from fsl_async.foreign_text import printable
from parties.operator.fingerprints import fingerprint
from parties.operator.log_fields import plain_text
from parties.operator.observer import OperatorObserver
from parties.operator.overview import Desk, OperatedTask
from parties.operator.response_types import (
    VERSION,
    BlobsView,
    ClientsPage,
    EngineView,
    PeerView,
    RoundsView,
    RoundView,
    RunningView,
    ServerView,
    StatusView,
    SummaryView,
    TaskRow,
    TasksView,
)
from parties.outcome import Aborted, SumRefused
from parties.status import BlobsStatus, EngineStatus, PastRound, RoundStatus, ServerStatus

__all__ = [
    "CLIENTS_PER_PAGE",
    "SHOWN",
    "Shown",
    "clients_page",
    "round_view",
    "rounds_view",
    "status_view",
    "tasks_view",
]

CLIENTS_PER_PAGE = 40

Shown: TypeAlias = Literal["all", "submitted", "missing", "connected"]
SHOWN: Final[tuple[Shown, ...]] = ("all", "submitted", "missing", "connected")
"""Which of the known clients are asked for."""


def status_view(status: ServerStatus, observer: OperatorObserver) -> StatusView:
    """A server's status."""
    used, limit = observer.budget
    return {
        "version": VERSION,
        "server": f"S{status.server}",
        "task": status.task,
        "time": observer.setup.clock(),
        "started_at": observer.started_at,
        "stage": status.stage,
        "number": status.number,
        "asked": status.asked,
        "waiting_for": status.waiting_for,
        "round": _running_view(status.round) if status.round else None,
        "last": _summary(status.last) if status.last else None,
        "rounds": {"done": status.rounds_done, "aborted": status.rounds_aborted},
        "notes": [msgspec.to_builtins(note) for note in status.notes],
        "servers": [_server_view(status, observer, index) for index in (0, 1)],
        "peer": _peer_view(status, observer.setup.release),
        "fingerprints": {"task": fingerprint(status.task_digest), "model": fingerprint(status.model_digest)},
        "clients": {
            "known": status.clients_known,
            "connected": len(observer.connected),
            "connections": status.clients_connected,
            "submitted": status.round.submissions if status.round else 0,
        },
        "memory": {"resident": resident_bytes(), "budget_used": used, "budget": limit},
        "blobs": _blobs_view(status.blobs) if status.blobs else None,
        "engine": _engine_view(status.engine) if status.engine else None,
        "lag_seconds": observer.lag.worst,
        "log_level": observer.setup.log.level,
        "troubles": [msgspec.to_builtins(problem) for problem in observer.troubles()],
    }


def tasks_view(desk: Desk) -> TasksView:
    """The tasks of a process."""
    return {"version": VERSION, "server": desk.process.name, "tasks": [_task_row(task) for task in desk.tasks()]}


def _task_row(task: OperatedTask) -> TaskRow:
    standing, status = task.standing(), task.overview.status()
    return {
        "name": task.name,
        "digest": standing.digest.hex(),
        "state": standing.state,
        "explanation": plain_text(standing.explanation),
        "round": status.round.number if status.round else None,
        "round_state": status.round.state if status.round else status.waiting_for,
        "clients_connected": status.clients_connected,
        "peer_connected": status.peer_connected,
        "rounds_done": status.rounds_done,
        "rounds_aborted": status.rounds_aborted,
        "store": standing.store,
    }


def rounds_view(past: list[PastRound]) -> RoundsView:
    """Settled rounds in brief, oldest first."""
    return {"version": VERSION, "rounds": [_summary(each) for each in past]}


def round_view(past: PastRound) -> RoundView:
    """A settled round with all clients that were counted, and why others were not."""
    report = past.report
    return {
        "version": VERSION,
        **_summary(past),
        "round_id": report.round_id.hex(),
        "clients": list(report.clients),
        "excluded": dict(report.excluded),
        "model": {block.name: block.digest.hex() for block in report.model},
    }


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
) -> ClientsPage:
    """One page of the clients that a server knows.

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


def _running_view(run: RoundStatus) -> RunningView:
    view: RunningView = msgspec.to_builtins(run)
    view["round_id"] = run.round_id.hex()
    view["fingerprint"] = fingerprint(run.round_id)
    view["step"] = "collect" if run.activity == "collecting" else "compute"
    view["closes_at"] = run.closes_at if math.isfinite(run.closes_at) else None
    return view


def _server_view(status: ServerStatus, observer: OperatorObserver, index: int) -> ServerView:
    place = observer.setup.places[index]
    here = index == status.server
    return {
        "name": f"S{index}",
        "here": here,
        "operator": printable(place.operator),
        "address": printable(place.address),
        "release": observer.setup.release if here else status.peer_release,
        "key": fingerprint(status.statement_keys[index]),
    }


def _peer_view(status: ServerStatus, release: str) -> PeerView:
    """The other server. A connection is refused where the task differs, and no round opens where the model does."""
    connected = status.peer_connected
    told = bool(release and status.peer_release)
    return {
        "name": f"S{1 - status.server}",
        "connected": connected,
        "same_task": True if connected else None,
        "same_model": True if status.stage == "running" else None,
        "same_release": release == status.peer_release if told else None,
    }


def _blobs_view(blobs: BlobsStatus) -> BlobsView:
    view: BlobsView = msgspec.to_builtins(blobs)
    view["where"] = plain_text(blobs.where)
    return view


def _engine_view(engine: EngineStatus) -> EngineView:
    """What computes rounds; what a worker says of itself is text from another host."""
    view: EngineView = msgspec.to_builtins(engine)
    view["where"] = plain_text(engine.where)
    for worker in view["workers"]:
        worker["name"], worker["host"] = printable(worker["name"]), printable(worker["host"])
    return view


def _summary(past: PastRound) -> SummaryView:
    report = past.report
    return {
        "number": report.number,
        "protocol": past.protocol,
        "ended": report.ended,
        "aborted": plain_text(report.explanation) if isinstance(report.ending, Aborted) else "",
        "refused": plain_text(report.explanation) if isinstance(report.ending, SumRefused) else "",
        "counted": len(report.clients),
        "not_counted": dict(sorted(Counter(report.excluded.values()).items())),
        "opened_at": past.opened_at,
        "settled_at": past.settled_at,
        "seconds": past.seconds,
        "times": msgspec.to_builtins(past.times),
        "evaluating": past.evaluating,
    }
