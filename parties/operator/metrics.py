"""A server's metrics, for Prometheus.

Rules: every task has its own registry, whose samples get the label `task` when they are exposed; what concerns the
process has no such label, and is exposed once; any other label takes one of a few values that are fixed here, or
"other": never a client's name, an address or anything else that a stranger chooses. Gauges are set from the server's
status when they are scraped; counters count events since the process started. docs/operating.md explains each metric.
"""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Final, TypeAlias, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fsl_async.errors import FslError, StorageError
from fsl_async.protocols import ssa
from fsl_async.wire.messages import FromClient, FromPeer, FromServer, Reason
from parties import events
from parties.files.disk import room
from parties.status import BlobsStatus, EngineStatus, ServerStatus, TaskState
from parties.storage.mark import backed_up_at

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"
TOSSING = "Tossing"
STATES = (TOSSING, *(state.__name__ for state in ssa.ACCEPTS))
EXCLUSIONS = ("only_s0", "only_s1", "mismatch", "proof", "bound")
WARNINGS = (
    "apply",
    "blobs",
    "clients",
    "compiler",
    "compute",
    "configuration",
    "event-loop",
    "log",
    "model",
    "operator-port",
    "peer",
    "privacy",
    "store",
    "task",
    "tokens",
)

EVALUATION_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
ROUND_BUCKETS = (1.0, 3.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)


PROCESS_WIDE: Final = ("process_", "python_", "fsl_event_loop_", "fsl_connections_failed")
"""The beginnings of the names of metrics that concern the process, and no task."""

PROCESS_WARNINGS: Final = "fsl_warnings"
"""The metric that counts a process's warnings, without the label `task`, besides those of tasks."""


class Metrics:
    """The metrics of one task, or of a process with several, in a `registry` of their own."""

    def __init__(self, server: str, task: str) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        version = importlib.metadata.version("fsl-async")
        Info("fsl_server", "Which server this is.", registry=registry).info(
            {"server": server, "task": task, "version": version}
        )
        self._rounds = _Rounds(registry)
        self._traffic = _Traffic(registry)
        self._lag = Histogram(
            "fsl_event_loop_lag_seconds", "How late tasks run.", buckets=LAG_BUCKETS, registry=registry
        )
        self._stalls = Counter("fsl_event_loop_stalls", "Lags above the alarm's threshold.", registry=registry)
        budget = Gauge("fsl_memory_budget_bytes", "Memory for messages.", ["of"], registry=registry)
        self._budget_used, self._budget_limit = budget.labels("used"), budget.labels("limit")
        self._events = _Events(registry)
        self._status = _Status()
        registry.register(self._status)

    def hear(self, event: events.ServerEvent) -> None:
        """Count an event."""
        for part in (self._rounds, self._traffic, self._events):
            part.hear(event)
        if isinstance(event, events.BudgetMoved):
            self._budget_used.set(event.used)
            self._budget_limit.set(event.limit)

    def lagged(self, seconds: float, stalled: bool) -> None:
        """Count one measurement of the event loop's lag."""
        self._lag.observe(seconds)
        if stalled:
            self._stalls.inc()

    def show(self, status: ServerStatus, state: TaskState = "running", store: str = "", ready: bool = True) -> None:
        """Set the gauges from this status.

        Args:
            status: the server's.
            state: where the task is.
            store: the path of its store; empty or "memory": it has none on a disk.
            ready: whether it can take part in rounds.
        """
        run = status.round
        gauges = (*_of_round(status), *_of_host(status, store), ("ready", "1 while the task can take part.", ready))
        self._status.families = [
            _one_of("fsl_task_state", "1 for where the task is.", get_args(TaskState), state),
            _one_of("fsl_round_state", "1 for the running round's state.", STATES, run.state if run else TOSSING),
            *(GaugeMetricFamily(f"fsl_{name}", text, value=value) for name, text, value in gauges),
        ]


def exposed(process: Metrics, tasks: Sequence[tuple[str, Metrics]]) -> bytes:
    """All metrics of a process and its tasks in Prometheus' text format.

    Args:
        process: the process's own; of one with a single task, that task's.
        tasks: the metrics of each task, by its name.
    """
    found: dict[str, Metric] = {}
    alone = any(metrics is process for _, metrics in tasks)
    for family in process.registry.collect():
        if family.name.startswith(PROCESS_WIDE) or (family.name == PROCESS_WARNINGS and not alone):
            _add(found, family, {})
    for task, metrics in tasks:
        for family in metrics.registry.collect():
            if not family.name.startswith(PROCESS_WIDE):
                _add(found, family, {"task": task})
    return generate_latest(SimpleNamespace(collect=found.values))  # all that it uses


def _add(found: dict[str, Metric], family: Metric, labels: dict[str, str]) -> None:
    """Add a family's samples, with these labels, to what has been found."""
    whole = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
    whole.samples += [one._replace(labels={**one.labels, **labels}) for one in family.samples]


class _Rounds:
    """Metrics of rounds: how they ended, and how many clients were counted or excluded, and why; no names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._settled = Counter("fsl_rounds", "Rounds settled.", ["outcome"], registry=registry)
        self._seconds = Histogram(
            "fsl_round_seconds", "From opening to settled.", buckets=ROUND_BUCKETS, registry=registry
        )
        self._evaluation = Histogram(
            "fsl_evaluation_seconds", "Of one submission.", buckets=EVALUATION_BUCKETS, registry=registry
        )
        self._counted = Counter("fsl_clients_counted", "Clients counted, over all rounds.", registry=registry)
        self._excluded = Counter(
            "fsl_clients_excluded", "Clients not counted, over all rounds.", ["reason"], registry=registry
        )
        for outcome in ("done", "aborted", "refused"):
            self._settled.labels(outcome)
        for reason in EXCLUSIONS:
            self._excluded.labels(reason)

    def hear(self, event: events.ServerEvent) -> None:
        match event:
            case events.Evaluated(seconds=seconds):
                self._evaluation.observe(seconds)
            case events.RoundSettled(past=past):
                self._settled.labels(past.report.ended).inc()
                self._seconds.observe(past.seconds)
                self._counted.inc(len(past.report.clients))
                for reason in past.report.excluded.values():
                    self._excluded.labels(reason if reason in EXCLUSIONS else OTHER).inc()


class _Traffic:
    """Metrics of messages."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ["kind", "direction"]
        self._bytes = Counter("fsl_message_bytes", "Bytes of messages before framing.", labels, registry=registry)
        self._messages = Counter("fsl_messages", "Messages.", labels, registry=registry)
        tags = {
            message.__name__: str(message.__struct_config__.tag)
            for message in (*get_args(FromClient), *get_args(FromServer), *get_args(FromPeer))
        }
        self._kinds = tags | {tag: tag for tag in tags.values()}
        self._counters: dict[tuple[str, str], tuple[Counter, Counter]] = {}

    def hear(self, event: events.ServerEvent) -> None:
        match event:
            case events.MessageSent(kind=kind, size=size):
                self._count(kind, "out", size)
            case events.MessageReceived(kind=kind, size=size):
                self._count(kind, "in", size)

    def _count(self, kind: str, direction: str, size: int) -> None:
        if (kind, direction) not in self._counters:  # looking them up by their labels takes longer than counting
            labels = self._kinds.get(kind, OTHER), direction
            self._counters[kind, direction] = self._bytes.labels(*labels), self._messages.labels(*labels)
        size_counter, counter = self._counters[kind, direction]
        size_counter.inc(size)
        counter.inc()


class _Events:
    """Counters of the events that name one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = {
            events.RequestRefused: get_args(Reason),
            events.Warned: WARNINGS,
            events.Violated: get_args(events.EvidenceKind),
        }
        errors = {events.ConnectionFailed: tuple(each.__name__ for each in _all_kinds(FslError))}
        self._labels = {event: frozenset(values) for event, values in (labels | errors).items()}
        self._counters: dict[type[events.ServerEvent], Counter] = {}
        for event in events.ServerEvent.__subclasses__():
            if event.counter:
                name, text, label = event.counter
                self._counters[event] = counter = Counter(name, text, [label] if label else [], registry=registry)
                for value in labels.get(event, ()):  # one that begins at 1 is no increase to Prometheus
                    counter.labels(value)

    def hear(self, event: events.ServerEvent) -> None:
        if not event.counter:
            return
        counter, field = self._counters[type(event)], event.counter[2]
        if field:
            value = getattr(event, field)
            counter = counter.labels(value if value in self._labels[type(event)] else OTHER)
        counter.inc()


class _Status(Collector):
    """Gauges of a status, as it was when it was shown last."""

    families: Sequence[Metric] = ()

    def collect(self) -> Iterator[Metric]:
        yield from self.families


def _one_of(name: str, text: str, all_states: Sequence[str], state: str) -> Metric:
    """A gauge that is 1 with the label of the state that is, and 0 with every other one."""
    family = GaugeMetricFamily(name, text, labels=["state"])
    for each in all_states:
        family.add_metric([each], each == state)
    return family


_Gauge: TypeAlias = tuple[str, str, float]
"""The end of a name, what it is, and its value; NaN where there is none."""


def _of_round(status: ServerStatus) -> Iterator[_Gauge]:
    """Gauges of the running round, of who is connected, and of the figures in the status's notes."""
    run = status.round
    closes = math.nan if run is None else math.inf if run.closes_at is None else run.closes_at
    yield "round_number", "The running round; 0 while none is.", run.number if run else 0
    yield "round_opened_timestamp_seconds", "When it opened.", run.opened_at if run else math.nan
    yield "round_closes_timestamp_seconds", "When it closes at the latest.", closes
    yield "round_submissions", "Submissions on its list.", run.submissions if run else 0
    yield "submissions_waiting", "Of them, waiting for evaluation.", run.submissions - run.evaluated if run else 0
    yield "clients_connected", "Clients connected.", status.clients_connected
    yield "peer_connected", "1 while the other server is connected.", status.peer_connected
    for note in status.notes:
        yield from ((name, f"{note.title}.", value) for name, value in note.figures.items())


def _of_host(status: ServerStatus, store: str) -> Iterator[_Gauge]:
    """Gauges of the workers that compute for this server, none of which is named, of its store and of its blobs."""
    engine, blobs, path = status.engine, status.blobs, Path(store) if store not in ("", "memory") else None
    yield "cluster_connected", "1 while the server is connected with its cluster.", _told(engine, "connected")
    yield "workers", "Workers that compute for this server.", len(engine.workers) if engine else math.nan
    yield "workers_waiting", "Submissions that no worker has been given.", _told(engine, "waiting")
    yield "partials_open", "Partial sums that are not sealed.", _told(engine, "open")
    yield "partials_sealed", "Partial sums of this round that have come.", _told(engine, "sealed")
    yield "given_again", "Submissions of the running round that were given out again.", _told(engine, "given_again")
    yield "partials_bytes", "Bytes of partial sums that have come.", _told(engine, "bytes_taken")
    yield "store_free_bytes", "Bytes that are free for the store.", _free(path)
    yield "backup_timestamp_seconds", "When the last backup was made.", backed_up_at(path) if path else math.nan
    yield "blobs_bytes", "Bytes of blobs.", _told(blobs, "stored_bytes")
    yield "blobs_free_bytes", "Bytes that are free for blobs.", _told(blobs, "free_bytes")
    yield "blobs_to_erase", "Groups of blobs that wait to be erased.", _told(blobs, "to_erase")


def _told(part: EngineStatus | BlobsStatus | None, field: str) -> float:
    value: float | None = None if part is None else getattr(part, field)
    return math.nan if value is None else value


def _free(store: Path | None) -> float:
    with suppress(StorageError):
        return room(store) if store else math.nan
    return math.nan


def _all_kinds(error: type[FslError]) -> Iterator[type[FslError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _all_kinds(kind)
