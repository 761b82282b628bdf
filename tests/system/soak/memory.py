"""Very many tiny rounds, and what they leave in the servers' memory: `python -m tests.system.soak.memory`.

Two servers are processes with their stores on disk, as `fsl-async serve` runs them, and two clients submit to one round
after the other. Once caches are full, nothing may grow: the anonymous memory of each server (RssAnon of
/proc/PID/status), the largest of each tenth of the rounds, is compared with that of the first tenth after the warm-up.
SQLite's log is measured as well. What a server says is rotated meanwhile as the guide has it, by copying and
truncating. The exit code is 1 where memory has grown by more than `ASKED`.
"""

import argparse
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import trio
from rich.table import Table

from fsl_async import Ring, Sparse, Task
from parties import connect

from .children import start_servers
from .site import SERVERS, lay_out
from .telling import shown, tell

ASKED = 0.02
"""By this part of itself memory may grow."""

ROTATED = 100
"""After so many rounds a server's log is rotated."""

CLIENTS = ("anna", "ben")
TENTHS = 10
KIB = 2**10

TASK = Task(
    name="memory",
    blocks=(Sparse("items", rows=64, select=2),),
    ring=Ring(64, fraction_bits=8),
    min_clients=2,
    max_clients=2,
)


@dataclass
class Seen:
    """What was seen of one server, after each round.

    Attributes:
        memory: bytes of anonymous memory.
        log: bytes of its store's log.
        said: bytes that it has said since the last rotation.
    """

    memory: list[int] = field(default_factory=list)
    log: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)

    def growth(self, warm_up: int) -> float:
        """By which part of itself the memory has grown since the warm-up."""
        steady = self.memory[warm_up:]
        tenth = max(1, len(steady) // TENTHS)
        return max(steady[-tenth:]) / max(steady[:tenth]) - 1


def anonymous_memory(process: int) -> int:
    """The bytes that a process has in memory and no file has."""
    status = Path(f"/proc/{process}/status").read_text()
    return KIB * int(status.split("RssAnon:")[1].split()[0])


async def measure(folder: Path, rounds: int, seed: int, progress: Callable[[str, int], None]) -> tuple[Seen, Seen]:
    """Let two servers live through so many rounds."""
    site = lay_out(folder, TASK, CLIENTS, np.random.default_rng(seed), rounds={"clients": len(CLIENTS)})
    seen = Seen(), Seen()
    async with trio.open_nursery() as nursery:
        servers = await start_servers(site, nursery)
        anna, ben = (connect(site.task_file, site.key(name), state=None, patience=math.inf) for name in CLIENTS)
        async with anna as first, ben as second:
            for number in range(rounds):
                for client in (first, second):
                    await client.retrieve({"items": [number % 64]}, wait=True)
                for client in (first, second):
                    await client.submit({"items": ([number % 64], [0.5])})
                await first.outcome()
                for index, server in enumerate(servers):
                    seen[index].memory.append(anonymous_memory(server.pid))
                    log = site.state(SERVERS[index]).with_suffix(".sqlite-wal")
                    seen[index].log.append(log.stat().st_size)
                    seen[index].said.append(server.log.stat().st_size)
                    if (number + 1) % ROTATED == 0:
                        shutil.copyfile(server.log, server.log.with_suffix(".log.1"))
                        os.truncate(server.log, 0)
                progress("rounds", number + 1)
        nursery.cancel_scope.cancel()
    return seen


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--warm-up", type=int, default=1000, help="rounds in which caches may become full")
    parser.add_argument("--seed", type=int, default=1, help="draws the model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsl-async-memory-") as folder, shown(options.rounds) as progress:
        seen = trio.run(measure, Path(folder), options.rounds, options.seed, progress)
    growth = [each.growth(options.warm_up) for each in seen]
    table = Table("what", *SERVERS, title=f"{options.rounds} tiny rounds, growth after {options.warm_up}")
    table.add_row("anonymous memory at the end", *(f"{each.memory[-1] / KIB:,.0f} KiB" for each in seen))
    table.add_row("grown by", *(f"{part:.2%}" for part in growth))
    table.add_row("most said between two rotations", *(f"{max(each.said) / KIB:,.0f} KiB" for each in seen))
    table.add_row("longest log of the store", *(f"{max(each.log) / KIB:,.0f} KiB" for each in seen))
    kept = range(0, options.rounds, max(1, options.rounds // 100))
    tell(
        {
            "rounds": options.rounds,
            "growth": growth,
            "asked": ASKED,
            "memory_kib": [[each.memory[number] // KIB for number in kept] for each in seen],
            "longest_log": [max(each.log) for each in seen],
            "said": [[each.said[number] for number in kept] for each in seen],
        },
        table,
    )
    return 1 if max(growth) > ASKED else 0


if __name__ == "__main__":
    sys.exit(main())
