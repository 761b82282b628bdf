"""The log lines of events, which say themselves what their level, text and fields are.

Rules: a line has counts and names, as `parties.events` has them. What an auditor asks for later (how a round ended and
for whom, who was enrolled and revoked, who broke the protocol) goes to the audit, which is written at every level.
Events that anybody can cause again and again are counted after a few lines (see `parties.operator.repeats`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import structlog

from parties.events import ConnectionFailed, PeerLost, PeerMet, RequestRefused, RoundSettled, ServerEvent, Warned
from parties.operator.log import AUDIT, LEVELS
from parties.operator.log_fields import fields_of
from parties.operator.repeats import MINUTE, Repeats, Source, network_of
from parties.status import PastRound

EVENTS = "parties.happenings"
"""The logger of events that are not for the audit; operators filter by this name."""

NAMES_PER_LINE = 500


@dataclass(frozen=True)
class Line:
    """One line: its level, its text (`event`), its fields, and whether it belongs to the audit."""

    level: int
    event: str
    fields: dict[str, Any] = field(default_factory=dict)
    audit: bool = False


class EventLog:
    """Writes one server's events to the log.

    Args:
        server: the server's name, on every line.
        clock: a monotonic clock, in seconds.
        task: the task's name, on every line; empty: none is named.
    """

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic, *, task: str = "") -> None:
        self._clock = clock
        self._repeats = Repeats()
        self._events = logging.getLogger(EVENTS)
        self._plain = structured_logger(EVENTS, server, task)
        self._audit = structured_logger(AUDIT, server, task)

    def hear(self, event: ServerEvent) -> None:
        """Write an event's lines, unless too many of its kind came before it."""
        self.tick()
        if event.level == "debug" and not self._events.isEnabledFor(logging.DEBUG):
            return  # most events are these, and no line of theirs would be written
        source, text = source_of(event), str(getattr(event, "explanation", ""))
        if source is not None and not self._repeats.admits(source, self._clock(), text):
            return
        for line in lines_of(event):
            self._write(line)

    def tick(self) -> None:
        """Write how many lines were left out, once their minute is over; call this from time to time."""
        for source, times, example in self._repeats.over(self._clock()):
            fields = {"kind": source.kind, "origin": source.who, "times": times, "seconds": MINUTE}
            fields |= {"explanation": example} if example else {}
            self._write(Line(logging.INFO, f"{source.event}, as often as this besides", fields))

    def _write(self, line: Line) -> None:
        logger = self._audit if line.audit else self._plain
        logger.log(line.level, line.event, **line.fields)


def source_of(event: ServerEvent) -> Source | None:
    """Who causes an event that may be repeated; None if it cannot be repeated, or must be logged each time."""
    match event:
        case ConnectionFailed(origin=origin, kind=kind):
            return Source("connection failed", kind, network_of(origin))
        case RequestRefused(client=client, reason=reason):
            return Source("request refused", reason, client)
        case Warned(about=about):
            return Source("warning", about)
        case PeerMet() | PeerLost():
            return Source("peer connected or lost", type(event).__name__)
    return None


def lines_of(event: ServerEvent) -> Iterator[Line]:
    """The lines of an event: one, unless it is the end of a round with more names than a line should have."""
    if isinstance(event, RoundSettled):
        yield from _settled(event.past)
        return
    shown = {name: _shown(kind, getattr(event, field)) for field, name, kind in fields_of(type(event))}
    fields = {name: value for name, value in shown.items() if value is not None}
    yield Line(LEVELS[event.level], event.words, fields, event.audit)


def _shown(kind: str, value: Any) -> Any:
    """A field's value in the log, by its kind; None where there is nothing to show."""
    match kind:
        case "moment":
            return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds") if math.isfinite(value) else None
        case "identifier":
            return value.hex()[:16]
        case "seconds":
            return round(value, 6)
    return value


def _settled(past: PastRound) -> Iterator[Line]:
    """The end of a round, with who was counted and who was not, in as many lines as the names need."""
    report = past.report
    named = [*((client, "") for client in report.clients), *report.excluded.items()]
    pieces = [named[start : start + NAMES_PER_LINE] for start in range(0, len(named), NAMES_PER_LINE)] or [[]]
    common = {
        "round": report.number,
        "round_id": report.round_id.hex()[:16],
        "protocol": past.protocol,
        "counted": len(report.clients),
        "not_counted": len(report.excluded),
        "seconds": round(past.seconds, 6),
        "evaluating": round(past.evaluating, 6),
        **({"explanation": report.explanation} if report.explanation else {}),
    }
    level, event = {
        "done": (logging.INFO, "round done"),
        "aborted": (logging.WARNING, "round aborted"),
        "refused": (logging.WARNING, "sum opened and refused"),
    }[report.ended]
    for number, piece in enumerate(pieces, start=1):
        who = {
            "clients": [client for client, reason in piece if not reason],
            "excluded": {client: reason for client, reason in piece if reason},
            **({"part": number, "parts": len(pieces)} if len(pieces) > 1 else {}),
        }
        yield Line(level, event, common | who, audit=True)


def structured_logger(name: str, server: str, task: str = "") -> structlog.stdlib.BoundLogger:
    """A logger whose lines have fields, which `parties.operator.log_fields` guards, and name server and task."""
    return structlog.wrap_logger(  # type: ignore[no-any-return]  # the wrapper class below
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    ).bind(server=server, **({"task": task} if task else {}))
