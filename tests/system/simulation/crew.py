"""Trials on all processors: each worker draws, runs and judges its share of the seeds, and sends back what it saw."""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from parties.testing.injector import CrashPoint
from parties.testing.recorder import Transition

from .malice import draw, judged

CHUNK = 20
"""Seeds that a worker takes at a time."""


@dataclass(frozen=True)
class Seen:
    """What came of some seeds.

    Attributes:
        seeds: which they were.
        failures: by seed, what was wrong.
        faults: how many of each kind struck.
        transitions: how often each was taken.
        crash_points: how often a server died at each.
        virtual: seconds of virtual time.
        rounds: how many were done, and how many aborted.
    """

    seeds: int = 0
    failures: dict[int, tuple[str, ...]] = field(default_factory=dict)
    faults: Counter[str] = field(default_factory=Counter)
    transitions: Counter[Transition] = field(default_factory=Counter)
    crash_points: Counter[CrashPoint] = field(default_factory=Counter)
    virtual: float = 0.0
    rounds: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Seen) -> Seen:
        return Seen(
            self.seeds + other.seeds,
            self.failures | other.failures,
            self.faults + other.faults,
            self.transitions + other.transitions,
            self.crash_points + other.crash_points,
            self.virtual + other.virtual,
            self.rounds + other.rounds,
        )


def try_one(seed: int, *, surely: bool = False, alone: bool = False) -> Seen:
    """Run one seed's trial, surely with malice or alone."""
    verdict, failures = judged(draw(seed, surely=surely, alone=alone))
    if verdict is None:
        return Seen(1, {seed: failures})
    reports = verdict.case.world.settled[0].values()
    return Seen(
        seeds=1,
        failures={seed: failures} if failures else {},
        faults=Counter(type(fault).__name__ for fault in verdict.fired),
        transitions=Counter(verdict.transitions),
        crash_points=Counter(verdict.crash_points),
        virtual=verdict.seconds,
        rounds=Counter("aborted" if report.ended == "aborted" else "done" for report in reports),
    )


def try_all(seeds: range, workers: int, *, surely: bool = False, alone: bool = False) -> Iterator[Seen]:
    """Run the trials of many seeds; yields what came of a few at a time, in any order."""
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    if workers == 1:
        yield from map(partial(_try_some, surely=surely, alone=alone), chunks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=50) as pool:
        yield from pool.imap_unordered(partial(_try_some, surely=surely, alone=alone), chunks)


def _try_some(seeds: Iterable[int], *, surely: bool, alone: bool) -> Seen:
    gc.disable()  # a world is one great cycle: it goes with the chunk, not while it runs
    try:
        return sum((try_one(seed, surely=surely, alone=alone) for seed in seeds), Seen())
    finally:
        gc.enable()
        gc.collect()
