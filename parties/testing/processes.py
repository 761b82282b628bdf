"""Parties as processes that can be killed between any two of their steps.

A process has lives. What belongs to a life ends with it: its tasks are cancelled, its connections are cut, and neither
its disk nor its network does anything more for it, so that whatever its tasks still do while they end reaches nobody.
Which life a task belongs to is known from its context, which tasks inherit from the task that started them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

import trio

__all__ = ["KilledError", "Life", "Process", "current_life"]

_life: ContextVar[Life] = ContextVar("life")


class KilledError(BaseException):
    """The process of this task has been killed; only the world catches this."""


@dataclass(eq=False)
class Life:
    """A process from a start to its end.

    Attributes:
        process: whose.
        number: of this life, from 1.
        alive: whether it goes on.
        mistaken: whether the test's own code has misused a client in it.
        scope: of all its tasks.
        ending: called when it is killed, to cut off whatever it holds.
    """

    process: Process
    number: int
    alive: bool = True
    mistaken: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ending: list[Callable[[], None]] = field(default_factory=list)

    def enter(self) -> None:
        """From now on this task, and all that it starts, belong to this life."""
        _life.set(self)

    def kill(self) -> None:
        """End it here, as a power failure would."""
        if self.alive:
            self.alive = False
            for end in self.ending:
                end()
            self.scope.cancel()

    def require_alive(self) -> None:
        """Go no further in a process that has been killed.

        Raises:
            KilledError: it has.
        """
        if not self.alive:
            raise KilledError


@dataclass(eq=False)
class Process:
    """A party's process over all its lives.

    Attributes:
        name: the party's.
        rng: of what happens by chance to this process alone.
        lives: how many it has had.
        commits: how many it has begun, over all lives.
        sends: likewise, how often it has written to a connection.
        dials: likewise, how many connections it has made.
        down: seconds from its latest death to its next life; infinity: there will be none.
    """

    name: str
    rng: random.Random = field(repr=False)
    lives: int = 0
    commits: int = 0
    sends: int = 0
    dials: int = 0
    down: float = 1.0
    _current: list[Life] = field(default_factory=list, repr=False)

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return bool(self._current) and self._current[-1].alive

    def begin(self) -> Life:
        """Begin its next life."""
        self.lives += 1
        life = Life(self, self.lives)
        self._current = [life]
        return life

    def kill(self, down: float) -> None:
        """Kill it, to start again after so many seconds."""
        self.down = down
        for life in self._current:
            life.kill()


def current_life() -> Life | None:
    """The life that the running task belongs to; none outside all processes."""
    return _life.get(None)
