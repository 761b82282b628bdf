"""The log of a server: lines for people on a terminal, one JSON object a line for machines.

    logging.getLogger("parties.…").warning(…) ──┐
    events ──> parties.operator.log_lines ───────┴──> only_listed ──> console or JSON ──> stream

Rules: it is attached to the loggers of this project's packages and to no others; it is a context, and detached when
that ends; `parties.operator.log_fields` decides what a line may contain. The audit (`parties.audit`) is written at
every level. A slow or absent reader of the log delays nothing (see `parties.operator.log_writer`).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal, TextIO, TypeAlias

import structlog

from fsl_async.errors import MisuseError
from parties.operator.log_fields import FAILURE, discreet_record, only_listed, without_names
from parties.operator.log_writer import LogWriter, writer_for

Form: TypeAlias = Literal["auto", "human", "json"]
"""The form of lines; auto: human on a terminal, otherwise json."""

AUDIT = "parties.audit"
PACKAGES = ("fsl_async", "transport", "parties")
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}

Line: TypeAlias = MutableMapping[str, Any]

_TASK: ContextVar[str] = ContextVar("task", default="")


@contextmanager
def about_task(name: str) -> Iterator[None]:
    """Name a task in every line that is written within the block, and by what is started there."""
    before = _TASK.set(name)
    try:
        yield
    finally:
        _TASK.reset(before)


def level_number(level: str) -> int:
    """The number of a named level.

    Raises:
        MisuseError: there is no such level.
    """
    if level.lower() not in LEVELS:
        raise MisuseError(f"log level: one of {', '.join(LEVELS)} expected, got {level[:32]!r}")
    return LEVELS[level.lower()]


class Log:
    """The log of this process.

    Example:
        >>> with Log("S0", "json").installed():
        ...     await serve()

    Args:
        server: the name of the server that the process runs, for lines that do not name one.
        form: the form of lines.
        level: the lowest level that is written.
        stream: where lines are written; stderr by default.
        member: the name of the worker or scheduler that the process is, on every line; empty: it is none.
        names: the highest level at which lines name clients; above it they, and texts that may, are withheld.

    Raises:
        MisuseError: there is no such level.
    """

    def __init__(
        self,
        server: str = "",
        form: Form = "auto",
        level: str = "info",
        stream: TextIO | None = None,
        *,
        member: str = "",
        names: str = "error",
    ) -> None:
        self._number, self._named = level_number(level), level_number(names)
        stream = sys.stderr if stream is None else stream  # sys.stderr is None if it was closed from the start
        self._writer = writer_for(stream)
        self._handler = _Handler(self._writer)
        renderer = _renderer(form, stream is not None and stream.isatty())
        self._handler.setFormatter(_Formatter(renderer, server, member, lambda: self._number <= self._named))

    @property
    def level(self) -> str:
        """The lowest level that is written."""
        return next(name for name, number in LEVELS.items() if number == self._number)

    @property
    def problem(self) -> str:
        """Why lines wait to be written, as text; empty if nothing keeps them."""
        return self._writer.problem

    def set_level(self, level: str) -> None:
        """Write from this level on, at once.

        Raises:
            MisuseError: there is no such level.
        """
        self._number = level_number(level)
        if self._handler in logging.getLogger(PACKAGES[0]).handlers:
            self._apply()

    @contextmanager
    def installed(self) -> Iterator[Log]:
        """Write for as long as the block lasts."""
        loggers = [logging.getLogger(name) for name in (*PACKAGES, AUDIT)]
        levels = [logger.level for logger in loggers]
        self._apply()
        for name in PACKAGES:
            logging.getLogger(name).addHandler(self._handler)
        try:
            yield self
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.removeHandler(self._handler)
                logger.setLevel(level)
            self._writer.finish()

    def _apply(self) -> None:
        for name in PACKAGES:
            logging.getLogger(name).setLevel(self._number)
        logging.getLogger(AUDIT).setLevel(logging.INFO)


class _Handler(logging.Handler):
    """Writes every line, and says how many were lost because they waited too long to be written."""

    def __init__(self, writer: LogWriter) -> None:
        super().__init__()
        self._writer = writer
        self._lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record's line; a record that cannot be formatted is lost, and raises nothing."""
        try:
            if self._lost and self._write(_lost(self._lost)):
                self._lost = 0
            self._lost += not self._write(record)
        except Exception:
            self.handleError(record)

    def _write(self, record: logging.LogRecord) -> bool:
        return self._writer.write(self.format(record) + "\n")


def _lost(lines: int) -> logging.LogRecord:
    text = "%d lines of the log were lost here: nobody read them in time, or their disk was full"
    return logging.LogRecord("parties.log", logging.WARNING, "", 0, text, (lines,), None)


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Formats structlog's records and the standard library's alike, and passes both through `only_listed`."""

    def __init__(self, renderer: Any, server: str, member: str, named: Callable[[], bool]) -> None:
        def provenance(logger: Any, method: str, line: Line) -> Line:
            return _provenance(line["_record"], server) | ({"member": member} if member else {}) | dict(line)

        meta = structlog.stdlib.ProcessorFormatter.remove_processors_meta
        self._named = named
        super().__init__(processors=[provenance, meta, only_listed, self._nameless, renderer])

    def format(self, record: logging.LogRecord) -> str:
        return super().format(discreet_record(record, self._named()))

    def _nameless(self, logger: Any, method: str, line: Line) -> Line:
        return line if self._named() else without_names(line)


def _renderer(form: Form, terminal: bool) -> Any:
    if form == "json" or (form == "auto" and not terminal):
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(
        colors=terminal,
        exception_formatter=structlog.dev.plain_traceback,  # the default would print local variables
        event_key="event",
        timestamp_key="time",
    )


def _provenance(record: logging.LogRecord, server: str) -> dict[str, Any]:
    """When and where a record was made, and of an error its class, its text and its traceback's locations."""
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "event": "",  # filled in from the line; listed here for its position
        "logger": record.name,
    }
    if server:
        line["server"] = server
    if task := _TASK.get():
        line["task"] = task
    failure = record.__dict__.get(FAILURE)
    if failure is not None:
        frames = [
            f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in extract_tb(failure.__traceback__)
        ]
        line["exception"] = " < ".join((f"{type(failure).__name__}: {failure}", *reversed(frames)))
    return line
