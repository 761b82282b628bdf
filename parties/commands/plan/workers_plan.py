"""A cluster's workers in a server's plan: what one of them does, and how many a number of clients an hour needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from fsl_async.costs.scaling import (
    MOST_WORKERS,
    Constants,
    HostCapacity,
    Limit,
    Load,
    Workers,
    capacity,
    worker_hourly,
)
from fsl_async.errors import MisuseError


@dataclass(frozen=True)
class Needed:
    """How many workers a number of clients an hour needs.

    Attributes:
        hourly: clients an hour.
        count: workers that add up so many.
        limit: what the server is capable of with them.
    """

    hourly: float
    count: int
    limit: Limit

    @property
    def enough(self) -> bool:
        """Whether the server itself takes so many."""
        return self.limit.clients_per_hour >= self.hourly


@dataclass(frozen=True)
class WorkersPlan:
    """What the workers of a cluster do.

    Attributes:
        workers: how many there are, and what each has.
        hourly: clients that one of them adds up in an hour.
        reads: bytes that it reads of a client.
        sends: bytes of a partial sum that it sends; its memory holds one, and what is being added.
        needed: how many the clients that were asked for need; None: not asked.
    """

    workers: Workers
    hourly: float
    reads: float
    sends: float
    needed: Needed | None


def read_workers(text: str, threads: int, network: float) -> Workers:
    """The workers that an option describes.

    Args:
        text: a number, or a number and the threads of each, such as "4,16".
        threads: of each where the text does not say.
        network: bits that each receives or sends in a second.

    Raises:
        MisuseError: it is something else, or a number is out of range.
    """
    words = [word.strip() for word in text.split(",")]
    if not 1 <= len(words) <= 2 or not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        raise MisuseError(
            f"workers: a number of workers expected, or that and the threads of each, such as 4,16; got {text!r}"
        )
    return Workers(int(words[0]), int(words[1]) if len(words) == 2 else threads, network)


def plan_workers(
    load: Load, host: HostCapacity, constants: Constants, clients: int, hourly: float | None
) -> WorkersPlan | None:
    """Plan the workers of a server.

    Args:
        load: what a client brings.
        host: what the server runs on, and its workers.
        constants: what the machines take.
        clients: how many are in a round.
        hourly: clients an hour for which to say how many workers they need; None: not asked.

    Raises:
        MisuseError: the number is out of range, needs more workers than there can be, or there are no workers.
    """
    if host.workers is None:
        if hourly is not None:
            raise MisuseError("hourly: the plan has no workers; add --workers N,THREADS to be told how many are needed")
        return None
    one = worker_hourly(load, host.workers, constants)
    needed = None if hourly is None else _needed(load, host, constants, clients, (hourly, one))
    return WorkersPlan(host.workers, one, load.size, float(load.cells), needed)


def _needed(load: Load, host: HostCapacity, constants: Constants, clients: int, rates: tuple[float, float]) -> Needed:
    """How many workers are needed for an hourly rate, if one of them has the other rate."""
    hourly, one = rates
    if not 0 < hourly < math.inf:
        raise MisuseError(f"hourly: a number of clients above 0 expected, got {hourly}")
    count = max(1, math.ceil(hourly / one))
    if count > MOST_WORKERS or host.workers is None:
        raise MisuseError(f"hourly: {hourly:,.0f} clients an hour need {count:,} workers, more than {MOST_WORKERS:,}")
    with_them = replace(host, workers=replace(host.workers, count=count))
    return Needed(hourly, count, capacity(load, with_them, constants, clients))


def result_of_workers(plan: WorkersPlan) -> dict[str, Any]:
    """What the workers do as one JSON object."""
    needed = plan.needed
    return {
        "count": plan.workers.count,
        "threads": plan.workers.threads,
        "clients_per_hour_of_one": plan.hourly,
        "bytes_read_of_a_client": plan.reads,
        "bytes_of_a_partial_sum": plan.sends,
        "needed": None
        if needed is None
        else {
            "clients_per_hour": needed.hourly,
            "workers": needed.count,
            "enough": needed.enough,
            "first_limit": needed.limit.first.part,
            "server_clients_per_hour": needed.limit.clients_per_hour,
        },
    }
