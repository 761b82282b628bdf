"""What hostile connections cost honest clients: `python -m tests.system.soak.hostile`.

Honest clients come one after the other; each connects to both servers, retrieves and submits, and the time of all that
is taken: alone, then while 1,000 idle and 200 trickling connections stand at each server (see `hostile_process`, which
opens a new one for each that the servers drop), and alone again, so that a drift of the machine shows. Everybody
shares the processors, the attack too.

The servers have their ordinary limits, but for one: `half_open` is raised so that all of these connections really
stand at the same time. With the ordinary 256 the servers would give up the oldest handshakes and have less to bear.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trio
from rich.table import Table

from fsl_async import Dense, Ring, Sparse, Task
from parties import connect
from parties.commands.bench.machine import memory_of, spent_by

from .children import Child, python_module, start_servers
from .hostile_process import attacker_name, keys_needed
from .site import UNIT, Site, lay_out
from .telling import console, tell

ASKED = 2.0
"""Honest clients may take so many times as long."""

MIB = 2**20
PHASES = ("alone", "under attack", "alone again")
WARM_UP = 3
SETTLING_SECONDS = 15.0
"""After the attack stands: longer than the grace of a request and the deadline of a handshake."""


@dataclass
class Hostile:
    """A deployment under attack, and what was measured.

    Attributes:
        idle: connections at each server that say nothing.
        trickling: likewise, that send ten bytes a second.
        arrival: seconds in which they connect.
        seconds: by phase, what each honest client took.
        standing: what the attack told last: by server and kind, how many connections stand.
        dropped: likewise, how often one was dropped.
        processor: by process, which part of one processor it used while honest clients came under attack.
    """

    site: Site
    idle: int
    trickling: int
    arrival: float
    seconds: dict[str, list[float]] = field(default_factory=dict)
    standing: list[dict[str, int]] = field(default_factory=list)
    dropped: list[dict[str, int]] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    processor: dict[str, float] = field(default_factory=dict)
    numbers: int = 0

    async def run(self, runs: int, progress: Callable[[str], None]) -> None:
        """Measure all phases."""
        async with trio.open_nursery() as nursery:
            servers = await start_servers(self.site, nursery)
            for _ in range(WARM_UP):
                await self._visit()
            await self._phase("alone", runs, progress)
            async with trio.open_nursery() as attacking:
                attack = self._attack()
                attacking.start_soon(attack.run_well)
                await self._until_standing(progress)
                with self._using_processor([*servers, attack]):
                    await self._phase("under attack", runs, progress)
                attacking.cancel_scope.cancel()
            self.memory = [memory_of(server.pid)[1] for server in servers]
            await trio.sleep(SETTLING_SECONDS)
            await self._phase("alone again", runs, progress)
            nursery.cancel_scope.cancel()

    def _attack(self) -> Child:
        arguments = (self.site.folder, "--idle", self.idle, "--trickling", self.trickling, "--arrival", self.arrival)
        return Child(
            "the attack",
            python_module("tests.system.soak.hostile_process", *arguments),
            self.site.log("attack"),
            self._from_attack,
        )

    def _from_attack(self, told: dict[str, Any]) -> None:
        self.standing, self.dropped = told["standing"], told["dropped"]

    @contextmanager
    def _using_processor(self, children: list[Child]) -> Iterator[None]:
        started, before = time.monotonic(), [spent_by(child.pid).total for child in children]
        yield
        took = time.monotonic() - started
        for child, used in zip(children, before, strict=True):
            self.processor[child.name] = (spent_by(child.pid).total - used) / took

    async def _until_standing(self, progress: Callable[[str], None]) -> None:
        expected = 0.95 * (self.idle + self.trickling)
        while not self.standing or min(sum(kinds.values()) for kinds in self.standing) < expected:
            progress(f"connections that stand: {[sum(kinds.values()) for kinds in self.standing]}")
            await trio.sleep(0.5)
        await trio.sleep(SETTLING_SECONDS)

    async def _phase(self, phase: str, runs: int, progress: Callable[[str], None]) -> None:
        self.seconds[phase] = []
        for run in range(runs):
            progress(f"{phase}: client {run + 1} of {runs}")
            self.seconds[phase].append(await self._visit())

    async def _visit(self) -> float:
        """The seconds in which one honest client connects, retrieves and submits."""
        name, self.numbers = f"client-{self.numbers}", self.numbers + 1
        started = time.perf_counter()
        async with connect(self.site.task_file, self.site.key(name), state=None) as client:
            rows = np.arange(client.task.block("items").select, dtype=np.uint32) * 3
            await client.retrieve({"items": rows})
            await client.submit({"items": (rows, np.full((len(rows), 1), UNIT)), "head": np.full(64, UNIT)})
            return time.perf_counter() - started


def figures(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Medians and 95th percentiles by phase, and what the attack makes of them."""
    median = {phase: statistics.median(taken) for phase, taken in seconds.items()}
    tail = {phase: float(np.percentile(taken, 95)) for phase, taken in seconds.items()}
    calm = [phase for phase in PHASES if phase != "under attack"]
    return {
        "median_seconds": median,
        "p95_seconds": tail,
        "median_ratio": median["under attack"] / statistics.mean(median[phase] for phase in calm),
        "p95_ratio": tail["under attack"] / statistics.mean(tail[phase] for phase in calm),
        "asked": ASKED,
    }


async def measure(folder: Path, options: argparse.Namespace, progress: Callable[[str], None]) -> dict[str, Any]:
    """Lay out a deployment, attack it, and return what was found."""
    clients = WARM_UP + len(PHASES) * options.runs
    names = [f"client-{number}" for number in range(clients)]
    attackers = [attacker_name(number) for number in range(keys_needed(options.idle, options.trickling))]
    blocks = Sparse("items", rows=options.rows, select=options.select), Dense("head", size=64)
    task = Task(name="hostile", blocks=blocks, ring=Ring(64, fraction_bits=8), min_clients=2, max_clients=clients + 2)
    rounds = {"clients": clients + 2, "count": 1}  # never full: all clients come to the same round
    limits = {"half_open": 2 * (options.idle + options.trickling)}
    rng = np.random.default_rng(options.seed)
    site = lay_out(folder, task, [*names, *attackers], rng, rounds=rounds, limits=limits)
    hostile = Hostile(site, options.idle, options.trickling, options.arrival)
    await hostile.run(options.runs, progress)
    return {
        **figures(hostile.seconds),
        "runs": options.runs,
        "standing": hostile.standing,
        "dropped": hostile.dropped,
        "peak_memory_mib": [memory / MIB for memory in hostile.memory],
        "processor": hostile.processor,
        "limits": limits,
        "seconds": hostile.seconds,
    }


def main() -> int:
    """Run the command; the exit code tells whether the medians' ratio is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--idle", type=int, default=1_000, help="connections at each server")
    parser.add_argument("--trickling", type=int, default=200, help="connections at each server")
    parser.add_argument("--arrival", type=float, default=20.0, help="seconds in which all of these connect")
    parser.add_argument("--runs", type=int, default=20, help="honest clients in each phase")
    parser.add_argument("--rows", type=int, default=2**15)
    parser.add_argument("--select", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fsl-async-hostile-") as folder, console().status("") as status:
        told = trio.run(measure, Path(folder), options, status.update)
    tell(told, _table(told, options))
    return 0 if told["median_ratio"] <= ASKED else 1


def _table(told: dict[str, Any], options: argparse.Namespace) -> Table:
    title = (
        f"{options.idle:,} idle and {options.trickling:,} trickling connections at each server; "
        f"{options.runs} runs a phase"
    )
    table = Table("connect, retrieve, submit", "median", "p95", title=title)
    for phase in PHASES:
        median, tail = told["median_seconds"][phase], told["p95_seconds"][phase]
        table.add_row(phase, f"{1000 * median:,.0f} ms", f"{1000 * tail:,.0f} ms")
    table.add_row("ratio", f"{told['median_ratio']:.2f}", f"{told['p95_ratio']:.2f}")
    table.add_row("asked", f"at most {ASKED}", "")
    table.add_section()
    for kind in told["standing"][0]:
        standing, dropped = (
            ", ".join(f"{server.get(kind, 0):,}" for server in told[what]) for what in ("standing", "dropped")
        )
        table.add_row(kind, f"stand: {standing}", f"dropped: {dropped}")
    memory = ", ".join(f"{memory:,.0f} MiB" for memory in told["peak_memory_mib"])
    table.add_row("peak memory of the servers", memory, "")
    for name, used in told["processor"].items():
        table.add_row(f"processor used by {name}", f"{used:.0%} of one", "")
    return table


if __name__ == "__main__":
    sys.exit(main())
