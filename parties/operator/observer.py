"""The observer of one server: it passes every event to the log, the metrics, the recent problems and the live views.

server ── event ──> OperatorObserver ──> log, metrics, recent problems, connected clients
                            └──> change ──> live views
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
import trio

from parties.concurrency import RecurringEvent
from parties.events import BudgetMoved, ClientLeft, ClientMet, ServerEvent, Warned
from parties.operator.lag import EventLoopLag
from parties.operator.log import Log
from parties.operator.log_lines import EventLog
from parties.operator.metrics import Metrics
from parties.operator.recent_problems import Problem, RecentProblems


async def no_store_problem() -> str:
    """The answer of a store that can always be written: no problem."""
    return ""


class Place(msgspec.Struct, frozen=True):
    """What the task file says of a server for people.

    Attributes:
        operator: who runs it; empty if the file does not say so.
        address: where it is reached.
    """

    operator: str = ""
    address: str = ""


@dataclass(frozen=True)
class ObserverSetup:
    """What an `OperatorObserver` is made of.

    Attributes:
        server: 0 or 1.
        task: the task's name; empty for the observer of a process with several.
        log: the log of this process.
        store_problem: returns why the store cannot be written, as text; empty if it can be.
        clock: the wall clock, in seconds since 1970.
        places: what the task file says of S0 and S1, made printable.
        release: the release of this software; empty if it is not told.
    """

    server: int
    task: str
    log: Log
    store_problem: Callable[[], Awaitable[str]] = no_store_problem
    clock: Callable[[], float] = field(default=time.time)
    places: tuple[Place, Place] = (Place(), Place())
    release: str = ""


class OperatorObserver:
    """Observes the server of one task for its operator; pass it to the server as `observe`.

    A process with several tasks has one for each, and one, of no task, for what concerns the process.

    Args:
        setup: what it is made of.
        process: the process's observer; None: this one is.

    Attributes:
        setup: what it was made of.
        process: the process's observer: itself, where there is one task.
        metrics: what it has counted.
        problems: what went wrong recently.
        lag: how late the event loop runs.
        connected: by client, the number of its connections; clients without one are not in it.
        budget: bytes taken of the memory budget for messages, and its limit; 0 and 0 until the server has reported.
        started_at: when this observer was made, in seconds since 1970.
    """

    def __init__(self, setup: ObserverSetup, process: OperatorObserver | None = None) -> None:
        self.setup = setup
        self.process = process or self
        self.metrics = Metrics(self.name, setup.task)
        self.problems = RecentProblems()
        self.lag: EventLoopLag = process.lag if process else EventLoopLag(self._lagged, self)
        self.connected: Counter[str] = Counter()
        self.budget = (0, 0)
        self.started_at = setup.clock()
        self._event_log = EventLog(self.name, task=setup.task)
        self._log_problem = ""
        self._changed = RecurringEvent()

    @property
    def name(self) -> str:
        """The server's name."""
        return f"S{self.setup.server}"

    def __call__(self, event: ServerEvent) -> None:
        """Take an event; see `parties.events.Observer`."""
        self._event_log.hear(event)
        self.metrics.hear(event)
        self.problems.hear(event, self.setup.clock())
        self._count_connections(event)
        self._changed.set()

    def troubles(self) -> list[Problem]:
        """What went wrong recently with the task, and with its process; the latest first."""
        if self.process is self:
            return self.problems.latest()
        both = [*self.problems.latest(), *self.process.problems.latest()]
        return sorted(both, key=lambda problem: problem.last_at, reverse=True)

    @property
    def change(self) -> trio.Event:
        """Set by the next event."""
        return self._changed.next

    def _lagged(self, seconds: float, alarming: bool) -> None:
        self.metrics.lagged(seconds, alarming)
        self._event_log.tick()
        before, self._log_problem = self._log_problem, self.setup.log.problem
        if self._log_problem and not before:
            self(Warned(about="log", explanation=f"lines of the log wait: {self._log_problem}"))

    def _count_connections(self, event: ServerEvent) -> None:
        match event:
            case ClientMet(client=client):
                self.connected[client] += 1
            case ClientLeft(client=client):
                self.connected[client] -= 1
                if self.connected[client] <= 0:
                    del self.connected[client]
            case BudgetMoved(used=used, limit=limit):
                self.budget = (used, limit)
