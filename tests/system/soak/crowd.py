"""Very many clients submit to one round, at the same moment: `python -m tests.system.soak.crowd --clients 1000`.

Every client has connections of its own to both servers, all from one address; the servers are processes with their
stores on disk. What is printed: how long the round took, how long a client's submission took, how much memory each
server needed, and that the sum is exact.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import trio
from rich.table import Table

from fsl_async import Dense, Ring, Sparse, Task

from .one_round import LIBERAL, Crowd, Measured, measure
from .site import SERVERS
from .telling import shown, tell

MIB = 2**20


def crowd_task(clients: int, rows: int, select: int) -> Task:
    """A task that the whole crowd takes part in."""
    return Task(
        name="crowd",
        blocks=(Sparse("items", rows=rows, select=select), Dense("head", size=64)),
        ring=Ring(64, fraction_bits=8),
        min_clients=2,
        max_clients=clients,
    )


def figures(measured: Measured) -> dict[str, Any]:
    """What is reported of a crowd's round."""
    waits = np.array(sorted(measured.submit.values()))
    return {
        "clients": len(waits),
        "round_seconds": max(measured.done),
        "settled_seconds": max(measured.settled),
        "processor_seconds": measured.processor,
        "submit_seconds": {f"p{p}": float(np.percentile(waits, p)) for p in (0, 50, 90, 99, 100)},
        "bytes_up_per_client": max(measured.sent.values()),
        "peak_memory_mib": [memory / MIB for memory in measured.memory],
        "exact": True,
        "limits": LIBERAL,
    }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=2**15)
    parser.add_argument("--select", type=int, default=256)
    parser.add_argument("--processes", type=int, default=2, help="in how many processes the clients are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--over", type=float, default=0.0, help="let the submissions go over so many seconds")
    options = parser.parse_args()
    task = crowd_task(options.clients, options.rows, options.select)
    with tempfile.TemporaryDirectory(prefix="fsl-async-crowd-") as folder, shown(options.clients) as progress:
        crowd = Crowd(options.clients, options.processes, rounds=1, seed=options.seed, over=options.over)
        [measured] = trio.run(measure, Path(folder), task, crowd, progress)
    told = figures(measured)
    tell(told, _table(told, options))
    return 0


def _table(told: dict[str, Any], options: argparse.Namespace) -> Table:
    title = f"{options.clients} clients in one round, m = {options.rows:,}, k = {options.select}, seed {options.seed}"
    table = Table("what", "measured", title=title)
    table.add_row("submissions let go → round done on both servers", f"{told['round_seconds']:.1f} s")
    table.add_row("→ settled: durable, shares erased", f"{told['settled_seconds']:.1f} s")
    for name, seconds in told["submit_seconds"].items():
        table.add_row(f"a client's submission → both receipts, {name}", f"{seconds:.2f} s")
    for who, seconds in told["processor_seconds"].items():
        table.add_row(f"processors' time, {who}", f"{seconds:.1f} s")
    table.add_row("upload of one client", f"{told['bytes_up_per_client']:,} bytes")
    for server, memory in zip(SERVERS, told["peak_memory_mib"], strict=True):
        table.add_row(f"peak memory of {server}", f"{memory:,.0f} MiB")
    table.add_row("sum of all updates", "exact on both servers")
    table.add_row("limits", ", ".join(f"{name} = {value:,}" for name, value in told["limits"].items()))
    return table


if __name__ == "__main__":
    sys.exit(main())
