"""`bench server`: what a server takes for each client, and what it must not exceed.

    fsl-async bench server                                  all figures but `large`
    fsl-async bench server --only doors --only memory       these
    fsl-async bench server --calibrate constants.json       the constants of the scaling model, for `plan --constants`

Rules: what is measured of a server is the processors' time of its processes, thread by thread, over a whole round with
two servers and all clients on this machine; what is compared, in the same run. docs/scaling.md explains each figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fsl_async.errors import MisuseError
from fsl_async.ring import Ring
from fsl_async.task import Sparse, Task
from parties.commands.bench.measures import Spread
from parties.commands.bench.results import Result, Target
from parties.commands.bench.server.adding import batch, crowd, fold
from parties.commands.bench.server.deployed import Deployed, RoundTaken, take_rounds
from parties.commands.bench.server.parts import blobs, outcomes, submitted
from parties.commands.bench.server.played import Played, play
from parties.commands.bench.server.spent import Spent, require_proc
from parties.commands.bench.vast import vast_round

__all__ = ["FIGURES", "LARGE", "SMALL", "Size", "server_figures"]


@dataclass(frozen=True)
class Size:
    """A submission's size, and how many clients are measured with it."""

    name: str
    rows: int
    select: int
    clients: int

    def task(self, clients: int = 0) -> Task:
        """A task of submissions of this size, whose updates are whole numbers."""
        block = Sparse("items", rows=self.rows, select=self.select)
        many = max(2, clients or self.clients)
        return Task(name="bench", blocks=(block,), ring=Ring(64), min_clients=2, max_clients=many)


SMALL = Size("84 kB", 2**15, 256, 200)
LARGE = Size("2.1 MB", 2**20, 10_486, 40)
TINY = Size("tiny", 2**8, 2, 50)

PLAYED, PLAYED_BEFORE = 1_000, 200
"""Clients of a core whose doors are played, and those that come before they are counted."""

DOORS = 2
CORE_MOST = {SMALL.name: 0.7, LARGE.name: 1.5}
DOOR_MOST = {LARGE.name: 14.0}
MEMORY_CLIENTS = (50, 500, 5_000)
MEMORY_MOST = 2_000.0


def one_process() -> Iterator[Result]:
    """A server without doors: its event loop, and all of it."""
    yield from _for_each_client(0)


def with_doors() -> Iterator[Result]:
    """A server with doors: its core without evaluation, and its doors with forwarding."""
    yield from _for_each_client(DOORS)


def _for_each_client(doors: int) -> Iterator[Result]:
    """What each server takes for a client, both servers apart, with clients of both sizes.

    What a client takes until the last one has its receipts, and what the statement of the outcome takes, seen with the
    small ones: with the large ones, a round's end lies between the two, of which there is one for all of them.
    """
    asking: list[list[float]] = []
    for size in (SMALL, LARGE):
        taken = take_rounds(Deployed(size.task(), size.clients, doors))
        pairs = [(taken.core[server], taken.doors[server]) for server in (0, 1)]
        until = [_parts(core[0], door[0], size.clients, doors) for core, door in pairs]
        after = [_parts(core[1], door[1], size.clients, doors) for core, door in pairs]
        if not asking:
            asking = [
                [end - begun for begun, end in zip(*both, strict=True)] for both in zip(until, after, strict=True)
            ]
        each = [[spent + more for spent, more in zip(*both, strict=True)] for both in zip(until, asking, strict=True)]
        ends = [[end - begun for begun, end in zip(*both, strict=True)] for both in zip(until, after, strict=True)]
        yield from _of_a_client(taken, size, doors, each, ends)


def _parts(core: Spent, door: Spent, clients: int, doors: int) -> list[float]:
    """Seconds for a client, in the order of `_names`."""
    if doors:
        return [(core.loop + core.writer) / clients, door.total / clients, core.others / clients]
    return [core.loop / clients, core.writer / clients, core.others / clients]


def _names(doors: int) -> tuple[str, str, str]:
    rest = "evaluation and all other threads"
    return ("core: event loop and store", "doors: with forwarding", rest) if doors else ("event loop", "store", rest)


def _of_a_client(
    taken: RoundTaken, size: Size, doors: int, each: list[list[float]], ends: list[list[float]]
) -> Iterator[Result]:
    """The results of one size, from seconds by server and part."""
    most = (CORE_MOST[size.name], DOOR_MOST.get(size.name)) if doors else (None, None)
    for place, name in enumerate(_names(doors)):
        seconds = Spread.of([server[place] for server in each])
        limit = most[place] if place < len(most) else None
        yield Result(
            name=f"{name}, {size.name} a client, {doors or 'no'} doors",
            parameters={
                "clients": size.clients,
                "rows": size.rows,
                "select": size.select,
                "doors": doors,
                "round_end_ms": [1e3 * size.clients * server[place] for server in ends],
                "round_seconds": taken.outcome,
                "receipts_seconds": taken.receipts,
            },
            seconds=seconds,
            rate=1 / max(seconds.median, 1e-9),
            unit="clients/s",
            targets=(Target(1e3 * seconds.median, "at most", limit, "ms a client"),) if limit else (),
        )


def core_alone() -> Iterator[Result]:
    """A core by itself: its doors are played, and nothing is evaluated."""
    for size in (SMALL, LARGE):
        taken = play(Played(size.task(PLAYED + PLAYED_BEFORE), PLAYED, PLAYED_BEFORE))
        each = [spent.over(PLAYED) for spent in taken.core]
        seconds = Spread.of([spent.total for spent in each])
        yield Result(
            name=f"core alone, {size.name} a client, its doors are played",
            parameters={
                "clients": PLAYED,
                "rows": size.rows,
                "select": size.select,
                "loop_ms": [1e3 * spent.loop for spent in each],
                "store_ms": [1e3 * spent.writer for spent in each],
                "receipts_seconds": taken.seconds,
            },
            seconds=seconds,
            rate=1 / max(seconds.median, 1e-9),
            unit="clients/s",
            targets=(Target(1e3 * seconds.median, "at most", CORE_MOST[size.name], "ms a client"),),
        )


def memory() -> Iterator[Result]:
    """What a core's memory grows by for each client in a round: its peak against that with two clients."""
    base = _peak(2)
    for clients in MEMORY_CLIENTS:
        most = _peak(clients)
        each = max(0.0, (most - base) / clients)
        yield Result(
            name=f"core's memory for a client, {clients:,} clients",
            parameters={"clients": clients, "bytes": most, "bytes_with_two_clients": base, "doors": DOORS},
            seconds=Spread.of([0.0]),
            rate=each,
            unit="bytes",
            targets=(Target(each, "at most", MEMORY_MOST, "bytes a client"),),
        )


def _peak(clients: int) -> int:
    """The most memory that a core has in its first round, the larger of both servers'."""
    taken = take_rounds(Deployed(TINY.task(clients), clients, DOORS, rounds=1))
    return max(most for most, _ in taken.memory)


FIGURES: Mapping[str, Callable[[], Iterator[Result]]] = {
    "submitted": submitted,
    "outcomes": outcomes,
    "blobs": blobs,
    "batch": batch,
    "fold": fold,
    "process": one_process,
    "doors": with_doors,
    "core": core_alone,
    "memory": memory,
    "crowd": crowd,
}
"""By the word that `--only` takes."""

ASKED_FOR = {"large": vast_round}
"""Those that are measured only if they are named."""

LARGE_WARNING = "large: a block of 2^28 rows takes about 14 GiB of memory, 5 GB of disk and several minutes"


def server_figures(only: tuple[str, ...]) -> Iterator[Result]:
    """All figures, or those that are named.

    Raises:
        MisuseError: there is no such figure, or this is not Linux.
        FslError: a process failed, or a sum is wrong.
    """
    every = {**FIGURES, **ASKED_FOR}
    for name in only:
        if name not in every:
            raise MisuseError(f"--only: one of {', '.join(every)} expected, got {name!r}")
    require_proc()
    for name in only or FIGURES:
        yield from every[name]()
