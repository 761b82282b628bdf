"""Everything that hears what one server does: its log, its metrics, its troubles, and whoever is looking on.

server ── happening ──> Operations ──> log, metrics, troubles, company
                            └──> change ──> live views
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from parties.concurrency import RecurringEvent
from parties.events import BudgetMoved, ClientLeft, ClientMet, ServerEvent
from parties.operator.lag import EventLoopLag
from parties.operator.log import Log
from parties.operator.log_lines import EventLog
from parties.operator.metrics import Metrics
from parties.operator.recent_problems import Troubles

__all__ = ["Operations", "OperationsSetup", "nothing_wrong"]


async def nothing_wrong() -> str:
    """A store that has no troubles."""
    return ""


@dataclass(frozen=True)
class OperationsSetup:
    """What operating a server is made of.

    Attributes:
        server: 0 or 1.
        task: the task's name.
        log: of this process.
        store_trouble: why the store cannot be written, in words; empty where it can.
        clock: the wall clock, in seconds since 1970.
    """

    server: int
    task: str
    log: Log
    store_trouble: Callable[[], Awaitable[str]] = nothing_wrong
    clock: Callable[[], float] = field(default=time.time)


class Operations:
    """Hears one server's happenings; give it to the server as `observe`.

    Attributes:
        setup: what it is made of.
        metrics: what was counted.
        troubles: what went wrong lately.
        lag: how late the event loop runs.
        company: by client, how many connections it has.
        budget: of the memory for messages, how many bytes are taken and how many there are; 0 and 0 until told.
        started_at: when this was made, in seconds since 1970.
    """

    def __init__(self, setup: OperationsSetup) -> None:
        self.setup = setup
        self.metrics = Metrics(self.name, setup.task)
        self.troubles = Troubles()
        self.lag = EventLoopLag(self._lagged, self)
        self.company: Counter[str] = Counter()
        self.budget = (0, 0)
        self.started_at = setup.clock()
        self._teller = EventLog(self.name)
        self._changed = RecurringEvent()

    @property
    def name(self) -> str:
        """The server's name."""
        return f"S{self.setup.server}"

    def __call__(self, happening: ServerEvent) -> None:
        """Hear a happening."""
        self._teller.hear(happening)
        self.metrics.hear(happening)
        self.troubles.hear(happening, self.setup.clock())
        self._keep_company(happening)
        self._changed.set()

    @property
    def change(self) -> trio.Event:
        """Set by the next happening."""
        return self._changed.next

    def _lagged(self, seconds: float, alarming: bool) -> None:
        self.metrics.lagged(seconds, alarming)
        self._teller.tick()

    def _keep_company(self, happening: ServerEvent) -> None:
        match happening:
            case ClientMet(client=client):
                self.company[client] += 1
            case ClientLeft(client=client):
                self.company[client] -= 1
                if self.company[client] <= 0:
                    del self.company[client]
            case BudgetMoved(used=used, limit=limit):
                self.budget = (used, limit)
