"""This machine: its processors by number and name, and jobs on them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

__all__ = ["cores", "processor", "run_all", "this_machine"]


def run_all(jobs: Sequence[Callable[[], object]], threads: int) -> None:
    """Run jobs in a number of threads; with one thread, in this one."""
    if threads == 1:
        for job in jobs:
            job()
    else:
        list(_pool(threads).map(lambda job: job(), jobs))


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
