"""The log line of every event: its level, its text and its fields.

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

from parties.events import (
    BudgetMoved,
    ClientLeft,
    ClientMet,
    ClientsDrawn,
    ConnectionFailed,
    Enrolled,
    Evaluated,
    MessageReceived,
    MessageSent,
    PeerLost,
    PeerMet,
    PrivacyCharged,
    RequestRefused,
    Resumed,
    Revoked,
    RoundMoved,
    RoundOpened,
    RoundSettled,
    ServerEvent,
    SubmissionIn,
    Violated,
    Warned,
)
from parties.operator.log import AUDIT
from parties.operator.repeats import MINUTE, Repeated, Repeats, Source, network_of
from parties.status import PastRound

__all__ = ["DETAILS", "NAMES_PER_LINE", "EventLog", "Line", "lines_of", "source_of", "structured_logger"]

EVENTS = "parties.happenings"
"""The logger of events that are not for the audit; operators filter by this name."""

NAMES_PER_LINE = 500

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

DETAILS = (MessageSent, MessageReceived, ClientMet, ClientLeft, SubmissionIn, Evaluated, BudgetMoved)
"""Events of one line each, whose level is DEBUG; of a server that is busy, nearly all."""


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
        if isinstance(event, DETAILS) and not self._events.isEnabledFor(DEBUG):
            return  # most events are these, and no line of theirs would be written
        source = source_of(event)
        if source is not None and not self._repeats.admits(source, self._clock(), _text_of(event)):
            return
        for line in lines_of(event):
            self._write(line)

    def tick(self) -> None:
        """Write how many lines were left out, once their minute is over; call this from time to time."""
        for repeated in self._repeats.over(self._clock()):
            self._write(_counted(repeated))

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


def _text_of(event: ServerEvent) -> str:
    """The explanation of an event that may be repeated; empty where it has none."""
    return str(getattr(event, "explanation", ""))


def _counted(repeated: Repeated) -> Line:
    source, example = repeated.source, repeated.example
    fields = {"kind": source.kind, "origin": source.who, "times": repeated.times, "seconds": MINUTE}
    fields |= {"explanation": example} if example else {}
    return Line(INFO, f"{source.event}, as often as this besides", fields)


def lines_of(event: ServerEvent) -> Iterator[Line]:
    """The lines of an event: one, unless it is the end of a round with more names than a line should have."""
    match event:
        case RoundSettled(past=past):
            yield from _settled(past)
        case Enrolled(client=client, key=key):
            yield Line(INFO, "client enrolled", {"client": client, "key": key}, audit=True)
        case Revoked(client=client):
            yield Line(INFO, "client revoked", {"client": client}, audit=True)
        case Violated(number=number, about=about, kind=kind, explanation=why):
            fields = {"round": number, "party": about, "kind": kind, "explanation": why}
            yield Line(ERROR, "protocol violated", fields, audit=True)
        case _:
            yield _plain_line(event)


def _plain_line(event: ServerEvent) -> Line:
    match event:
        case RoundOpened() | ClientsDrawn() | RoundMoved() | Resumed() | SubmissionIn() | Evaluated():
            return _round_line(event)
        case PrivacyCharged(number=number, rounds=rounds, epsilon=epsilon, budget=budget):
            fields = {"round": number, "rounds": rounds, "epsilon": epsilon, "budget": budget}
            return Line(INFO, "privacy budget charged", fields)
        case MessageSent(receiver=party, kind=kind, size=size):
            return Line(DEBUG, "message sent", {"party": party, "kind": kind, "bytes": size})
        case MessageReceived(sender=party, kind=kind, size=size):
            return Line(DEBUG, "message received", {"party": party, "kind": kind, "bytes": size})
        case RequestRefused(client=client, reason=reason, explanation=why):
            return Line(INFO, "request refused", {"client": client, "reason": reason, "explanation": why})
        case ClientMet(client=client):
            return Line(DEBUG, "client connected", {"client": client})
        case ClientLeft(client=client):
            return Line(DEBUG, "client left", {"client": client})
        case ConnectionFailed(origin=origin, kind=kind, explanation=why):
            return Line(INFO, "connection failed", {"origin": origin, "kind": kind, "explanation": why})
        case PeerMet():
            return Line(INFO, "peer connected")
        case PeerLost(explanation=why):
            return Line(WARNING, "peer lost", {"explanation": why})
        case Warned(about=about, explanation=why):
            return Line(WARNING, "warning", {"about": about, "explanation": why})
        case BudgetMoved(used=used, limit=limit):
            return Line(DEBUG, "memory budget", {"bytes": used, "limit": limit})
    return Line(DEBUG, type(event).__name__)


def _round_line(event: RoundOpened | ClientsDrawn | RoundMoved | Resumed | SubmissionIn | Evaluated) -> Line:
    match event:
        case RoundOpened(number=number, round_id=round_id, protocol=protocol, closes_at=closes_at):
            closes = {"closes_at": _utc(closes_at)} if math.isfinite(closes_at) else {}
            fields = {"round": number, "round_id": round_id.hex()[:16], "protocol": protocol, **closes}
            return Line(INFO, "round opened", fields)
        case ClientsDrawn(number=number, asked=asked, drawn=drawn):
            return Line(INFO, "clients drawn", {"round": number, "asked": asked, "drawn": drawn})
        case RoundMoved(number=number, state=state):
            return Line(INFO, "round moved", {"round": number, "state": state})
        case Resumed(number=number, state=state):
            return Line(WARNING, "round resumed after a restart", {"round": number, "state": state})
        case SubmissionIn(number=number, client=client, total=total):
            return Line(DEBUG, "submission in", {"round": number, "client": client, "total": total})
        case Evaluated(number=number, client=client, seconds=seconds, total=total):
            fields = {"round": number, "client": client, "seconds": round(seconds, 6), "total": total}
            return Line(DEBUG, "submission evaluated", fields)


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
        "done": (INFO, "round done"),
        "aborted": (WARNING, "round aborted"),
        "refused": (WARNING, "sum opened and refused"),
    }[report.ended]
    for number, piece in enumerate(pieces, start=1):
        who = {
            "clients": [client for client, reason in piece if not reason],
            "excluded": {client: reason for client, reason in piece if reason},
            **({"part": number, "parts": len(pieces)} if len(pieces) > 1 else {}),
        }
        yield Line(level, event, common | who, audit=True)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def structured_logger(name: str, server: str, task: str = "") -> structlog.stdlib.BoundLogger:
    """A logger whose lines have fields, which `parties.operator.log_fields` guards, and name server and task."""
    return structlog.wrap_logger(  # type: ignore[no-any-return]  # the wrapper class below
        logging.getLogger(name),
        processors=[structlog.stdlib.filter_by_level, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    ).bind(server=server, **({"task": task} if task else {}))
