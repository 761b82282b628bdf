"""Scheduling that a seed decides: the one place that uses private names of trio.

trio shuffles runnable tasks on purpose. For a simulation to give one transcript per seed, its scheduler must draw from
that seed. trio has two private names for this purpose; `tests/parties/simulation/test_determinism.py` fails if a
release drops them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio._core._run as scheduler

_internals: Any = scheduler


@contextmanager
def seeded_scheduling(seed: int) -> Iterator[None]:
    """Within this context trio's order of runnable tasks depends on the seed alone."""
    before = _internals._ALLOW_DETERMINISTIC_SCHEDULING
    state = _internals._r.getstate()
    _internals._ALLOW_DETERMINISTIC_SCHEDULING = True
    _internals._r.seed(seed)
    try:
        yield
    finally:
        _internals._ALLOW_DETERMINISTIC_SCHEDULING = before
        _internals._r.setstate(state)
