"""This machine: its processors by number and name, jobs on them, and what processes have had of them and of memory."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from time import process_time

from fsl_async.errors import MisuseError


def run_all(jobs: Sequence[Callable[[], object]], threads: int) -> None:
    """Run jobs in a number of threads; with one thread, in this one."""
    if threads == 1:
        for job in jobs:
            job()
    else:
        list(_pool(threads).map(lambda job: job(), jobs))


def processor_seconds(work: Callable[[], object], turns: int) -> float:
    """Seconds of processors, of all threads: the median of a few turns, after one that compiles.

    They are not those of the clock, so that other work on the host disturbs them little.
    """
    work()
    taken = []
    for _ in range(turns):
        begun = process_time()
        work()
        taken.append(process_time() - begun)
    return median(taken)


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads are started once, because starting them may take longer than a kernel's call."""
    return ThreadPoolExecutor(threads)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's name."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def this_machine() -> str:
    """This machine by its processors and its name, as constants that are measured on it say."""
    return f"this machine: {cores()} processors, {processor()}, {platform.node()}"


NANOSECONDS = 1e-9

WRITERS = ("_opened", "writes ")
"""How the store's thread is called: after the function that began it, or, in later versions of Python, by its name."""


@dataclass(frozen=True)
class Spent:
    """Seconds of processors that one process, or several, have had.

    Attributes:
        loop: of the first thread, in which the event loop runs.
        writer: of the store's thread.
        others: of all other threads: computing, hashing, files.
    """

    loop: float = 0.0
    writer: float = 0.0
    others: float = 0.0

    @property
    def total(self) -> float:
        """Of all threads."""
        return self.loop + self.writer + self.others

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.loop + other.loop, self.writer + other.writer, self.others + other.others)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.loop - other.loop, self.writer - other.writer, self.others - other.others)

    def over(self, count: float) -> Spent:
        """For each of so many."""
        return Spent(self.loop / count, self.writer / count, self.others / count)


def require_proc() -> None:
    """Refuse a system that does not tell what a thread has had.

    Raises:
        MisuseError: it is not Linux.
    """
    if not Path("/proc/self/schedstat").exists():
        raise MisuseError("bench: Linux alone tells what each thread has had of the processors")


def spent_by(process: int) -> Spent:
    """What a process has had so far, since it began, threads that have ended included."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    total = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime, see proc(5)
    loop = writer = 0.0
    for thread in Path(f"/proc/{process}/task").iterdir():
        try:
            seconds = int((thread / "schedstat").read_text().split()[0]) * NANOSECONDS
            if thread.name == str(process):
                loop += seconds
            elif (thread / "comm").read_text().startswith(WRITERS):
                writer += seconds
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return Spent(loop, writer, total - loop - writer)


def memory_of(process: int) -> tuple[int, int]:
    """Bytes that a process has in memory now, and the most that it has had."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return int(fields["VmRSS"]) << 10, int(fields["VmHWM"]) << 10
