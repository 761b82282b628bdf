"""`bench server`: what a server takes for each client, and what it must not exceed.

    python -m tests.bench server                                  all figures but `large`
    python -m tests.bench server --only process --only memory     these

Rules: what is measured of a server is the processors' time of its processes, thread by thread, over a whole round with
two servers and all clients on this machine; what is compared, in the same run. docs/scaling.md explains each figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fsl_async.errors import MisuseError
from parties.commands.bench.deployed import LARGE, SMALL, Deployed, RoundTaken, Size, take_rounds
from parties.commands.bench.machine import Spent, require_proc
from tests.bench.measures import Spread
from tests.bench.results import Result, Target
from tests.bench.server.adding import batch, crowd, fold
from tests.bench.server.parts import blobs, outcomes, submitted
from tests.bench.server.rounds import budget, whole_rounds
from tests.bench.server.submission import submission
from tests.bench.vast import vast_round

TINY = Size("tiny", 2**8, 2, 50)

MEMORY_CLIENTS = (50, 500, 5_000)
MEMORY_MOST = 2_000.0


def one_process() -> Iterator[Result]:
    """What each server takes for a client, both servers apart, with clients of both sizes.

    What a client takes until the last one has its receipts, and what the statement of the outcome takes, seen with the
    small ones: with the large ones, a round's end lies between the two, of which there is one for all of them.
    """
    asking: list[list[float]] = []
    for size in (SMALL, LARGE):
        taken = take_rounds(Deployed(size.task(), size.clients))
        until = [_parts(spent[0].over(size.clients)) for spent in taken.spent]
        after = [_parts(spent[1].over(size.clients)) for spent in taken.spent]
        if not asking:
            asking = [
                [end - begun for begun, end in zip(*both, strict=True)] for both in zip(until, after, strict=True)
            ]
        each = [[spent + more for spent, more in zip(*both, strict=True)] for both in zip(until, asking, strict=True)]
        ends = [[end - begun for begun, end in zip(*both, strict=True)] for both in zip(until, after, strict=True)]
        yield from _of_a_client(taken, size, each, ends)


_NAMES = ("event loop", "store", "evaluation and all other threads")


def _parts(spent: Spent) -> list[float]:
    """Seconds in the order of `_NAMES`."""
    return [spent.loop, spent.writer, spent.others]


def _of_a_client(taken: RoundTaken, size: Size, each: list[list[float]], ends: list[list[float]]) -> Iterator[Result]:
    """The results of one size, from seconds by server and part."""
    for place, name in enumerate(_NAMES):
        seconds = Spread.of([server[place] for server in each])
        yield Result(
            name=f"{name}, {size.name} a client",
            parameters={
                "clients": size.clients,
                "rows": size.rows,
                "select": size.select,
                "round_end_ms": [1e3 * size.clients * server[place] for server in ends],
                "round_seconds": taken.outcome,
                "receipts_seconds": taken.receipts,
            },
            seconds=seconds,
            rate=1 / max(seconds.median, 1e-9),
            unit="clients/s",
        )


def memory() -> Iterator[Result]:
    """What a server's memory grows by for each client in a round: its peak against that with two clients."""
    base = _peak(2)
    for clients in MEMORY_CLIENTS:
        most = _peak(clients)
        each = max(0.0, (most - base) / clients)
        yield Result(
            name=f"memory for a client, {clients:,} clients",
            parameters={"clients": clients, "bytes": most, "bytes_with_two_clients": base},
            seconds=Spread.of([0.0]),
            rate=each,
            unit="bytes",
            targets=(Target(each, "at most", MEMORY_MOST, "bytes a client"),),
        )


def _peak(clients: int) -> int:
    """The most memory that a server has in its first round, the larger of both servers'."""
    taken = take_rounds(Deployed(TINY.task(clients), clients, rounds=1))
    return max(most for *_, most in taken.memory)


FIGURES: Mapping[str, Callable[[], Iterator[Result]]] = {
    "submitted": submitted,
    "outcomes": outcomes,
    "blobs": blobs,
    "batch": batch,
    "fold": fold,
    "process": one_process,
    "memory": memory,
    "crowd": crowd,
}
"""By the word that `--only` takes."""

ASKED_FOR: Mapping[str, Callable[[], Iterator[Result]]] = {
    "large": vast_round,
    "budget": budget,
    "rounds": whole_rounds,
    "submission": submission,
}
"""Those that are measured only if they are named."""

LARGE_WARNING = "large: a block of 2^28 rows takes about 14 GiB of memory, 5 GB of disk and several minutes"


def server_figures(only: tuple[str, ...], beside: Path | None = None) -> Iterator[Result]:
    """All figures, or those that are named.

    Args:
        only: their names.
        beside: another version's interpreter, for `submission`.

    Raises:
        MisuseError: there is no such figure, or this is not Linux.
        FslError: a process failed, or a sum is wrong.
    """
    every = {**FIGURES, **ASKED_FOR}
    for name in only:
        if name not in every:
            raise MisuseError(f"--only: one of {', '.join(every)} expected, got {name!r}")
    require_proc()
    if beside is not None and "submission" not in only:
        raise MisuseError("--beside: expected with --only submission, which alone is compared with another version")
    for name in only or FIGURES:
        yield from submission(beside) if name == "submission" else every[name]()
