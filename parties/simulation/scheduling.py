"""The one place that reaches into trio: scheduling that a seed decides.

trio shuffles runnable tasks on purpose. For a simulation to give one transcript per seed its scheduler must draw from
ours. trio has two private names for this, for the same purpose; `tests/parties/simulation/test_determinism.py` fails
when they go.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio._core._run as scheduler

__all__ = ["seeded_scheduling"]

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
