"""The operator port's answers, made from a server's status: the same for the page, the terminal and other programs.

Rules: times are seconds since 1970, or null if there is none; clients appear by their public names, and only the view
of a single round has all of them; the version rises when a field changes its meaning or is removed.
"""

from __future__ import annotations

import heapq
import math
import resource
from collections import Counter
from pathlib import Path

import msgspec

from parties.operator.log_fields import plain_text
from parties.operator.observer import OperatorObserver
from parties.operator.overview import Desk, OperatedTask
from parties.operator.response_types import (
    VERSION,
    RoundsView,
    RoundView,
    RunningView,
    StatusView,
    SummaryView,
    TaskRow,
    TasksView,
)
from parties.outcome import Aborted, SumRefused
from parties.status import PastRound, RoundStatus, ServerStatus

__all__ = ["MOST_NAMES", "round_view", "rounds_view", "status_view", "tasks_view"]

MOST_NAMES = 200


def status_view(status: ServerStatus, observer: OperatorObserver) -> StatusView:
    """A server's status."""
    used, limit = observer.budget
    return {
        "version": VERSION,
        "server": f"S{status.server}",
        "task": status.task,
        "time": observer.setup.clock(),
        "started_at": observer.started_at,
        "waiting_for": status.waiting_for,
        "round": _running_view(status.round) if status.round else None,
        "rounds": {"done": status.rounds_done, "aborted": status.rounds_aborted},
        "peer": {"name": f"S{1 - status.server}", "connected": status.peer_connected},
        "clients": {
            "connected": status.clients_connected,
            "known": len(observer.connected),
            "names": heapq.nsmallest(MOST_NAMES, observer.connected),
        },
        "memory": {"resident": resident_bytes(), "budget_used": used, "budget": limit},
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


def resident_bytes() -> int:
    """Resident memory of this process in bytes; its peak, if the system does not report the present figure."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _running_view(run: RoundStatus) -> RunningView:
    return {
        "number": run.number,
        "round_id": run.round_id.hex(),
        "protocol": run.protocol,
        "state": run.state,
        "opened_at": run.opened_at,
        "closes_at": run.closes_at if math.isfinite(run.closes_at) else None,
        "submissions": run.submissions,
        "evaluated": run.evaluated,
        "minimum": run.minimum,
        "maximum": run.maximum,
        "waiting_for": run.waiting_for,
    }


def _summary(past: PastRound) -> SummaryView:
    report = past.report
    return {
        "number": report.number,
        "protocol": past.protocol,
        "aborted": plain_text(report.explanation) if isinstance(report.ending, Aborted) else "",
        "refused": plain_text(report.explanation) if isinstance(report.ending, SumRefused) else "",
        "counted": len(report.clients),
        "not_counted": dict(sorted(Counter(report.excluded.values()).items())),
        "opened_at": past.opened_at,
        "settled_at": past.settled_at,
        "seconds": past.seconds,
        "evaluating": past.evaluating,
    }
