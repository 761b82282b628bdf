"""Measures times, and the bounds of this machine with which they are compared.

Rules: a figure and its bound are measured in turns (work, bound, work, bound, …), so that other load on the machine
affects both; the median is reported, with the least and the greatest; everything runs once before it is measured, to
warm up compilers and caches; work and bound use the same number of threads.

The bounds are AES-128 under a fixed key on blocks in the first-level cache, for work that consists of AES; and reading
memory from end to end, or updating it in place, for work that consists of memory accesses.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba import njit

from fsl_async import kernels
from fsl_async.kernels.arrays import Blocks
from fsl_async.kernels.lane import passes_of
from fsl_async.kernels.trees.passes import encrypt_row
from parties.commands.bench.machine import run_all

Work = Callable[[], object]
Memory = npt.NDArray[np.uint64]

ROW_BLOCKS = 256
"""4 KiB, which fits into every first-level cache."""

AES_TURNS = 80_000
"""At least a scheduler's time slice, so that what disturbs the work disturbs the bound as well."""

MEMORY_WORDS = 2**25
"""256 MiB, which fits into no cache."""


class Spread(NamedTuple):
    """The spread of repeated measurements: of seconds, or of a bound's units per second."""

    median: float
    least: float
    greatest: float

    def times(self, factor: float) -> Spread:
        """The same in another unit."""
        return Spread(self.median * factor, self.least * factor, self.greatest * factor)

    @staticmethod
    def of(figures: Sequence[float]) -> Spread:
        """The spread of some figures, at least one."""
        return Spread(statistics.median(figures), min(figures), max(figures))


class Bound(NamedTuple):
    """A bound that is measured in turns with the work that it bounds.

    Attributes:
        name: its name, as shown.
        measure: measures it once, in units per second.
    """

    name: str
    measure: Callable[[], float]


def timed(work: Work) -> float:
    """The seconds of one call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def alternate(repetitions: int, bound: Bound, *works: Work) -> tuple[Spread, list[Spread]]:
    """Measure works and their bound in turns.

    Returns:
        The bound, and the seconds of every work.
    """
    for work in (bound.measure, *works):
        work()
    bounds: list[float] = []
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(repetitions):
        for times, work in zip(seconds, works, strict=True):
            times.append(timed(work))
        bounds.append(bound.measure())
    return Spread.of(bounds), [Spread.of(times) for times in seconds]


# ---- bounds


def aes_bound(threads: int = 1) -> Bound:
    """AES blocks per second of the active instruction set, in cache, under one key."""
    keys = kernels.key_schedule(bytes(16))
    rows = [np.zeros((ROW_BLOCKS, 2), dtype=np.uint64) for _ in range(threads)]
    often = _encrypt_often if kernels.compiles() else _encrypt_plainly
    jobs = [partial(often, keys, row, _turns()) for row in rows]

    def measure() -> float:
        return threads * ROW_BLOCKS * _turns() / timed(lambda: run_all(jobs, threads))

    return Bound("AES in cache", measure)


def _turns() -> int:
    """Enough turns for some milliseconds with any instruction set; the plain one is ten times slower."""
    return AES_TURNS if kernels.active_isa() != "plain" else AES_TURNS // 10


@njit(cache=True, nogil=True)
def _encrypt_often(keys: kernels.Keys, row: Blocks, turns: int) -> None:
    for _ in range(turns):
        encrypt_row(keys, row)


def _encrypt_plainly(keys: kernels.Keys, row: Blocks, turns: int) -> None:
    for _ in range(turns):
        passes_of(keys).encrypt_row(keys, row)


def read_bound(threads: int = 1) -> Bound:
    """Bytes per second when memory is read from end to end."""
    jobs = [partial(_read, part) for part in _memory_parts(threads)]

    def measure() -> float:
        return 8 * MEMORY_WORDS / timed(lambda: run_all(jobs, threads))

    return Bound("reading memory", measure)


def update_bound(threads: int = 1) -> Bound:
    """Bytes read and written per second when memory is updated in place from end to end."""
    jobs = [partial(_update, part) for part in _memory_parts(threads)]

    def measure() -> float:
        return 2 * 8 * MEMORY_WORDS / timed(lambda: run_all(jobs, threads))

    return Bound("updating memory", measure)


def _memory_parts(threads: int) -> list[Memory]:
    return np.array_split(np.ones(MEMORY_WORDS, dtype=np.uint64), threads)


@njit(cache=True, nogil=True)
def _read(memory: Memory) -> int:
    total = np.uint64(0)
    for index in range(len(memory)):
        total ^= memory[index]
    return int(total)


@njit(cache=True, nogil=True)
def _update(memory: Memory) -> None:
    for index in range(len(memory)):
        memory[index] += np.uint64(1)


# ---- the machine


def versions() -> dict[str, str]:
    """The versions of the software that determines the speed."""
    return {"python": platform.python_version(), "numba": numba.__version__, "numpy": np.__version__}
