"""Submissions of hundreds of megabytes in bounded memory: `python -m tests.system.soak.large --weights 52000000`.

A dense block of that many weights at 64 bits; every client sends its carrier one message of eight bytes a weight (52
million are 416 MB). Two servers and the clients are processes, the stores are on disk. First the submissions leave one
after the other, then, in a deployment of its own, all at once. What is printed is the most memory that each server had
(VmHWM): while submissions come in, it must not grow with the number of clients, only with the memory budget that the
server's file gives; beside that there are the sum and the submission that is being added. The exit code tells.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from rich.table import Table

from fsl_async import Dense, Ring, Task
from parties.schedule import ORDINARY_MEMORY

from .one_round import LIBERAL, Crowd, measure
from .site import SERVERS
from .telling import shown, tell

MIB = 2**20
WAYS = ("one after the other", "all at once")
SHARES_BESIDE = 3
CODE_MIB = 160
"""What a server may hold beside requests: the sum, the share that is being added, the same as elements; kernels."""


def large_task(weights: int, clients: int) -> Task:
    """A model of one dense block."""
    ring = Ring(64, fraction_bits=8)
    return Task(name="large", blocks=(Dense("body", size=weights),), ring=ring, min_clients=2, max_clients=clients)


async def measure_way(
    folder: Path, way: str, options: argparse.Namespace, progress: Callable[[str, int], None]
) -> dict[str, Any]:
    """One way of sending, in a deployment of its own, every client a process."""
    limits = {**LIBERAL, "memory_bytes": options.memory * MIB, "queue_seconds": 3_000.0}
    crowd = Crowd(options.clients, options.clients, 1, options.seed, in_turn=way == WAYS[0], limits=limits)
    [measured] = await measure(
        folder, large_task(options.weights, options.clients), crowd, lambda what, many: progress(f"{what}, {way}", many)
    )
    return {
        "way": way,
        "seconds": max(measured.settled),
        "submit_seconds": list(measured.submit.values()),
        "memory_at_start_mib": [memory / MIB for memory in measured.at_start],
        "memory_at_last_receipt_mib": [memory / MIB for memory in measured.at_receipt],
        "peak_memory_mib": [memory / MIB for memory in measured.memory],
        "exact": True,
    }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=int, default=52_000_000)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--memory", type=int, default=0, metavar="MIB", help="the servers' budget; 0: their default")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    ways = []
    with shown(options.clients) as progress:
        for way in WAYS:
            with tempfile.TemporaryDirectory(prefix="fsl-async-large-") as folder:
                ways.append(trio.run(measure_way, Path(folder), way, options, progress))
    told = figures(ways, options)
    tell(told, _table(told))
    return 0 if told["bounded"] else 1


def figures(ways: list[dict[str, Any]], options: argparse.Namespace) -> dict[str, Any]:
    """What is reported, and whether memory is bounded: what was needed beside what a server needs without clients."""
    share = 8 * options.weights / MIB
    budget = options.memory or max(ORDINARY_MEMORY / MIB, 2 * share)
    needed = [
        most - start
        for way in ways
        for start, most in zip(way["memory_at_start_mib"], way["memory_at_last_receipt_mib"], strict=True)
    ]
    allowed = budget + SHARES_BESIDE * share + CODE_MIB
    return {
        "weights": options.weights,
        "clients": options.clients,
        "share_mib": share,
        "budget_mib": budget,
        "most_needed_mib": max(needed),
        "allowed_mib": allowed,
        "bounded": max(needed) <= allowed,
        "ways": ways,
    }


def _table(told: dict[str, Any]) -> Table:
    title = f"{told['clients']} clients of {told['share_mib']:,.0f} MiB each, budget {told['budget_mib']:,.0f} MiB"
    table = Table(
        "sent", "seconds to both receipts", *(f"{name}, MiB: start, receipts, sum" for name in SERVERS), title=title
    )
    for line in told["ways"]:
        seconds = ", ".join(f"{seconds:.1f}" for seconds in line["submit_seconds"])
        stages = ("memory_at_start_mib", "memory_at_last_receipt_mib", "peak_memory_mib")
        memory = [", ".join(f"{line[stage][index]:,.0f}" for stage in stages) for index in (0, 1)]
        table.add_row(line["way"], seconds, *memory)
    needed, allowed = (f"{told[name]:,.0f} MiB" for name in ("most_needed_mib", "allowed_mib"))
    table.add_row("until the receipts, beside the start", "", needed, f"at most {allowed}")
    return table


if __name__ == "__main__":
    sys.exit(main())
