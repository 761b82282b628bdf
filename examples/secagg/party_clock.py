"""How much time each party takes where all of them share one thread.

A party's time is that of its tasks. A server is known by its main task, S0 comes first; every other task is the
client's that takes part.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

CLIENT, SERVERS = "client", ("S0", "S1")


class PartyClock(trio.abc.Instrument):
    """An instrument that adds up each party's time, for `trio.run(..., instruments=(clock,))`.

    Args:
        read: the clock of the time that is meant, `time.perf_counter` or `time.process_time`.

    Attributes:
        seconds: by party, the time so far.
    """

    def __init__(self, read: Callable[[], float]) -> None:
        self.seconds = dict.fromkeys((CLIENT, *SERVERS), 0.0)
        self._read = read
        self._party: dict[trio.lowlevel.Task, str] = {}
        self._servers = iter(SERVERS)
        self._started = 0.0

    @property
    def busier(self) -> float:
        """The seconds of the busier server, so far."""
        return max(self.seconds[name] for name in SERVERS)

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """A task belongs to its parent's party, unless it is the first of a server."""
        nursery = task.parent_nursery
        inherited = CLIENT if nursery is None else self._party.get(nursery.parent_task, CLIENT)
        self._party[task] = next(self._servers) if task.name.endswith("Server.run") else inherited

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        """Forget the task."""
        self._party.pop(task, None)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Start timing a step."""
        self._started = self._read()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Add the step's time to the task's party."""
        self.seconds[self._party.get(task, CLIENT)] += self._read() - self._started
