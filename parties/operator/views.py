"""What an operator is shown, as plain values: the same for the page, the terminal and whoever reads the JSON.

Rules: times are seconds since 1970, or null where there is none; clients are public names, in a round's own view alone
all of them; there is a version, and it rises when a field changes its meaning or goes away.
"""

from __future__ import annotations

import heapq
import math
import resource
from collections import Counter
from pathlib import Path

import msgspec

from parties.operator.log_fields import plain_text
from parties.operator.observer import Operations
from parties.operator.response_types import VERSION, RoundsView, RoundView, RunningView, StatusView, SummaryView
from parties.status import PastRound, RoundStatus, ServerStatus

__all__ = ["MOST_NAMES", "round_view", "rounds_view", "status_view"]

MOST_NAMES = 200


def status_view(standing: ServerStatus, operations: Operations) -> StatusView:
    """How a server stands."""
    used, limit = operations.budget
    return {
        "version": VERSION,
        "server": f"S{standing.server}",
        "task": standing.task,
        "time": operations.setup.clock(),
        "started_at": operations.started_at,
        "waiting_for": standing.waiting_for,
        "round": _running(standing.round) if standing.round else None,
        "rounds": {"done": standing.rounds_done, "aborted": standing.rounds_aborted},
        "peer": {"name": f"S{1 - standing.server}", "connected": standing.peer_connected},
        "clients": {
            "connected": standing.clients_connected,
            "known": len(operations.company),
            "names": heapq.nsmallest(MOST_NAMES, operations.company),
        },
        "memory": {"resident": resident_bytes(), "budget_used": used, "budget": limit},
        "lag_seconds": operations.lag.worst,
        "log_level": operations.setup.log.level,
        "troubles": [msgspec.to_builtins(trouble) for trouble in operations.troubles.latest()],
    }


def rounds_view(past: list[PastRound]) -> RoundsView:
    """Settled rounds in short, oldest first."""
    return {"version": VERSION, "rounds": [_summary(each) for each in past]}


def round_view(past: PastRound) -> RoundView:
    """A settled round with everybody who was counted, and why others were not."""
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
    """Memory that this process occupies; where the system does not tell, the most it has occupied."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _running(run: RoundStatus) -> RunningView:
    return {
        "number": run.number,
        "round_id": run.round_id.hex(),
        "phase": run.phase,
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
        "phase": past.phase,
        "aborted": plain_text(report.aborted),
        "refused": plain_text(report.refused),
        "counted": len(report.clients),
        "not_counted": dict(sorted(Counter(report.excluded.values()).items())),
        "opened_at": past.opened_at,
        "settled_at": past.settled_at,
        "seconds": past.seconds,
        "evaluating": past.evaluating,
    }
