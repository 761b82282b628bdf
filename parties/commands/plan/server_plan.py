"""What one server of a task is capable of on a host, what it would outgrow first, and what would move that.

The formulae are `fsl_async.costs.scaling`'s. Each step of the advice applies them to the host that it speaks of, so
that it says what is gained and what is the limit then. docs/scaling.md explains every figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import msgspec
import numpy as np

from fsl_async.costs.scaling import (
    ANOTHER_MACHINE,
    MOST_WORKERS,
    SEALED,
    Constants,
    HostCapacity,
    Limit,
    Load,
    Stage,
    Workers,
    capacity,
    load_of,
    memory_bytes,
    stored_bytes,
    worker_hourly,
)
from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.commands.plan.plan import check_dtype
from parties.deployment.memory_need import message_bytes, server_bytes

MOST_STEPS = 5
LEAST_GAIN = 1.02
"""A step that does not gain so much is none."""


@dataclass(frozen=True)
class Rooms:
    """Bytes that a host has, and that a server needs; 0 had: not said.

    Attributes:
        memory: needed at most at a time.
        disk: needed for one round.
        memory_had: of the host.
        disk_had: of the host's disk, where the server's blobs and its store are.
    """

    memory: float
    disk: float
    memory_had: float = 0.0
    disk_had: float = 0.0

    def short(self) -> Iterator[tuple[str, float, float]]:
        """What is not enough: its name, what is needed and what there is."""
        for name, needed, had in (("memory", self.memory, self.memory_had), ("disk", self.disk, self.disk_had)):
            if had and needed > had:
                yield name, needed, had


@dataclass(frozen=True)
class Step:
    """One change of the host, after those before it.

    Attributes:
        words: what to do.
        host: the host then.
        limit: what the server is capable of then.
    """

    words: str
    host: HostCapacity
    limit: Limit


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


@dataclass(frozen=True)
class ServerPlan:
    """A server's plan.

    Attributes:
        task: the task.
        clients: how many are in a round.
        load: what one of them brings.
        host: what the server runs on.
        constants: what the machine takes.
        limit: what the server is capable of.
        rooms: memory and room on the disk.
        steps: what would move the first limit, one after the other.
        stuck: why there is no further step.
        workers: what the workers of a cluster do; None where there is none.
    """

    task: Task
    clients: int
    load: Load
    host: HostCapacity
    constants: Constants
    limit: Limit
    rooms: Rooms
    steps: tuple[Step, ...]
    stuck: str
    workers: WorkersPlan | None = None

    @property
    def elsewhere(self) -> bool:
        """Whether the constants are those of another machine."""
        return self.constants == ANOTHER_MACHINE


def plan_server(
    task: Task,
    *,
    clients: int,
    host: HostCapacity,
    constants: Constants,
    dtype: str,
    memory: float = 0.0,
    disk: float = 0.0,
    hourly: float | None = None,
) -> ServerPlan:
    """Plan a server; see `ServerPlan`, and `Rooms` for bytes of memory and of the disk (0: not said).

    With `hourly`, the plan says how many workers so many clients an hour need.

    Raises:
        MisuseError: a number is out of range, the task has no sums, or workers are asked for and there are none.
    """
    if not 1 <= clients <= task.max_clients:
        raise MisuseError(f"clients: the task admits at most max_clients={task.max_clients}, got {clients}")
    for name, had in (("memory", memory), ("disk", disk)):
        if not 0 <= had < float("inf"):
            raise MisuseError(f"{name}: a size from 0 expected, got {had}")
    check_dtype(dtype)
    load = load_of(task)
    limit = capacity(load, host, constants, clients)
    steps, stuck = _steps(load, host, constants, clients)
    model = {block.name: np.empty(0, dtype=dtype) for block in task.model_blocks}
    needed = memory_bytes(server_bytes(task, model, message_bytes(task, model, 0)), constants, clients)
    return ServerPlan(
        task=task,
        clients=clients,
        load=load,
        host=host,
        constants=constants,
        limit=limit,
        rooms=Rooms(needed, stored_bytes(load, constants, clients), memory, disk),
        steps=steps,
        stuck=stuck,
        workers=_plan_workers(load, host, constants, clients, hourly),
    )


# ---- workers of a cluster


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


def _plan_workers(
    load: Load, host: HostCapacity, constants: Constants, clients: int, hourly: float | None
) -> WorkersPlan | None:
    """Plan the workers of a server, if it has some; for so many clients an hour, if that is asked.

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


# ---- what would move the first limit


def _steps(load: Load, host: HostCapacity, constants: Constants, clients: int) -> tuple[tuple[Step, ...], str]:
    """Changes that each move what is the first limit then, and why there are no more."""
    steps: list[Step] = []
    limit = capacity(load, host, constants, clients)
    while len(steps) < MOST_STEPS:
        change = _change(limit.first, host, constants)
        if isinstance(change, str):
            return tuple(steps), change
        words, host, constants = change
        then = capacity(load, host, constants, clients)
        if then.clients_per_hour < LEAST_GAIN * limit.clients_per_hour:
            return tuple(steps), f"{words} gains nothing more: the {then.first.part} would be the limit at once"
        steps.append(Step(words, host, then))
        limit = then
    return tuple(steps), ""


def _change(first: Stage, host: HostCapacity, constants: Constants) -> tuple[str, HostCapacity, Constants] | str:
    """What moves a limit: words, and host and constants then; or why nothing does."""
    match first.part:
        case "network of the workers" | "evaluation" if host.workers is not None:
            count = 2 * host.workers.count
            if count > MOST_WORKERS:
                return f"{count} workers are more than a plan knows of: divide the clients among several tasks"
            return f"{count} workers", replace(host, workers=replace(host.workers, count=count)), constants
        case "evaluation" | "answers" | "processors" | "files":
            threads = 2 * host.threads
            return f"a bigger host, of {threads} threads", replace(host, threads=threads), constants
        case "disk":
            faster = f"a disk that writes {2 * constants.disk / 1e6:,.0f} MB/s, or public parts in an object store"
            return faster, host, replace(constants, disk=2 * constants.disk)
        case "network":
            return f"{2 * host.network / 1e9:g} Gbit/s from clients", replace(host, network=2 * host.network), constants
        case "link between servers":
            return f"{2 * host.link / 1e9:g} Gbit/s between the servers", replace(host, link=2 * host.link), constants
        case "network of the workers" | "partial sums":
            return (
                f"workers send all cells for every {SEALED} clients, and the server adds one such sum after the other: "
                "divide the rows among several tasks"
            )
        case "event loop" | "writer":
            what = f"the {first.part} is one thread, and no larger host raises this limit"
            return f"{what}: divide the clients among several tasks, each served by a process of its own"


# ---- as JSON


def result_of_server(plan: ServerPlan) -> dict[str, Any]:
    """The plan as one JSON object."""
    return {
        "task": msgspec.to_builtins(plan.task),
        "clients": plan.clients,
        "load": asdict(plan.load) | {"size": plan.load.size},
        "host": asdict(plan.host),
        "constants": asdict(plan.constants) | {"of_this_machine": not plan.elsewhere},
        **_limit_of(plan.limit),
        "stages": [asdict(stage) | {"seconds": stage.seconds} for stage in plan.limit.stages],
        "rooms": asdict(plan.rooms) | {"short": [name for name, _, _ in plan.rooms.short()]},
        "steps": [{"change": step.words, "host": asdict(step.host), **_limit_of(step.limit)} for step in plan.steps],
        "stuck": plan.stuck,
        "workers": None if plan.workers is None else _result_of_workers(plan.workers),
    }


def _limit_of(limit: Limit) -> dict[str, Any]:
    return {
        "first_limit": limit.first.part,
        "clients_per_hour": limit.clients_per_hour,
        "collecting_seconds": limit.collecting,
        "ending_seconds": limit.ending,
        "round_seconds": limit.round_seconds,
    }


def _result_of_workers(plan: WorkersPlan) -> dict[str, Any]:
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
