"""Parties as simulated processes that can be killed between any two of their steps, and are started again.

A process has lives. When a life ends, its tasks are cancelled, its connections are cut, and neither its disk nor its
network does anything more for it, so what its tasks still do while they are cancelled has no effect. The life that a
task belongs to is in its context, which a task inherits from the task that started it.
`parties.testing.surroundings` keeps them running, as a service manager would.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias

import trio

from fsl_async.errors import ChannelError, StorageError

_life: ContextVar[Life] = ContextVar("life")


class KilledError(BaseException):
    """The process of this task has been killed; only the world catches this error."""


@dataclass(eq=False)
class Life:
    """One life of a process, from a start to its end.

    Attributes:
        process: the process.
        number: the life's number, from 1.
        alive: whether it has not ended.
        mistaken: whether the test's own code has misused a client in this life.
        scope: the cancel scope of all its tasks.
        ending: functions that are called when it is killed, to cut its connections and crash its disk.
    """

    process: Process
    number: int
    alive: bool = True
    mistaken: bool = False
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ending: list[Callable[[], None]] = field(default_factory=list)

    def enter(self) -> None:
        """Let this task, and all tasks that it starts, belong to this life."""
        _life.set(self)

    def kill(self) -> None:
        """End this life at once, as a power failure would."""
        if self.alive:
            self.alive = False
            for end in self.ending:
                end()
            self.scope.cancel()

    def require_alive(self) -> None:
        """Stop here if the process has been killed.

        Raises:
            KilledError: it has been killed.
        """
        if not self.alive:
            raise KilledError


@dataclass(eq=False)
class Process:
    """A party's process over all its lives.

    Attributes:
        name: the party's name.
        rng: the source of random choices for this process alone.
        lives: the number of lives so far.
        commits: the number of commits that it has begun in all its lives.
        sends: the number of its writes to connections in all its lives.
        dials: the number of connections that it has made in all its lives.
        down: seconds from its latest death to its next life; infinity if there will be none.
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
        """Whether it has a life now."""
        return bool(self._current) and self._current[-1].alive

    def begin(self) -> Life:
        """Start its next life."""
        self.lives += 1
        life = Life(self, self.lives)
        self._current = [life]
        return life

    def kill(self, down: float) -> None:
        """Kill it, to be started again after `down` seconds."""
        self.down = down
        for life in self._current:
            life.kill()


def current_life() -> Life | None:
    """The life that the running task belongs to; None outside of all processes."""
    return _life.get(None)


RESTART_SECONDS = 1.0
"""Seconds until a process that has ended with an error is started again."""

Recoverable: TypeAlias = Callable[[BaseException], bool]
"""Whether a process that has ended with an error is started again."""

Live: TypeAlias = Callable[[Life], Awaitable[None]]
"""What a process does in one life."""


def is_of_surroundings(error: BaseException) -> bool:
    """Whether an error comes from the network or the disk."""
    return isinstance(error, ChannelError | StorageError)


@dataclass(frozen=True)
class Ended:
    """A process that ended with an error, and is not started again."""

    party: str
    at: float
    error: BaseException
