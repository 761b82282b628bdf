"""Scheduling that a seed decides: the one place that uses private names of trio.

trio shuffles runnable tasks on purpose. For a simulation to give one transcript per seed, its scheduler must draw from
that seed. trio has two private names for this purpose; `tests/parties/simulation/test_determinism.py` fails if a
release drops them. Both belong to the process, and a simulation to its thread: so the random source that trio draws
from has a seed only in the threads that asked for one, and what other loops draw changes no simulation.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import trio._core._run as scheduler

_internals: Any = scheduler


class _Sources(threading.local):
    """The sources of one thread; the last one decides. A thread without any draws from trio's own."""

    def __init__(self, ordinary: random.Random) -> None:
        self._ordinary = ordinary
        self.seeded: list[random.Random] = []

    @property
    def current(self) -> random.Random:
        return self.seeded[-1] if self.seeded else self._ordinary


class _ByThread(random.Random):
    """What trio draws from while any thread's scheduling is decided by a seed."""

    def __init__(self, ordinary: random.Random) -> None:
        super().__init__(0)
        self.sources = _Sources(ordinary)

    def random(self) -> float:
        return self.sources.current.random()

    def shuffle(self, x: MutableSequence[Any]) -> None:
        self.sources.current.shuffle(x)

    def uniform(self, a: float, b: float) -> float:
        return self.sources.current.uniform(a, b)


@dataclass
class _Borrowed:
    """trio's two names, changed while any thread's scheduling is decided by a seed."""

    changing: threading.Lock = field(default_factory=threading.Lock)
    contexts: int = 0
    before: tuple[bool, random.Random] = (False, random.Random(0))  # noqa: S311 — the order of tasks is no secret
    source: _ByThread = field(default_factory=lambda: _ByThread(random.Random(0)))  # noqa: S311

    def borrow(self) -> _Sources:
        with self.changing:
            if not self.contexts:
                self.before = _internals._ALLOW_DETERMINISTIC_SCHEDULING, _internals._r
                self.source = _internals._r = _ByThread(_internals._r)
                _internals._ALLOW_DETERMINISTIC_SCHEDULING = True
            self.contexts += 1
            return self.source.sources

    def give_back(self) -> None:
        with self.changing:
            self.contexts -= 1
            if not self.contexts:
                _internals._ALLOW_DETERMINISTIC_SCHEDULING, _internals._r = self.before


_borrowed = _Borrowed()


@contextmanager
def seeded_scheduling(seed: int) -> Iterator[None]:
    """Within this context trio's order of runnable tasks, in this thread, depends on the seed alone."""
    sources = _borrowed.borrow()
    sources.seeded.append(random.Random(seed))  # noqa: S311 — the order of tasks is no secret
    try:
        yield
    finally:
        sources.seeded.pop()
        _borrowed.give_back()
