"""Submissions of hundreds of megabytes in bounded memory: `python -m tests.system.soak.large --weights 52000000`.

A dense block of that many weights at 64 bits; every client sends its carrier one message of eight bytes a weight (52
million are 416 MB). Two servers and the clients are processes, the stores are on disk. First the submissions leave one
after the other, then, in a deployment of its own, all at once. What is printed is the most memory that each server had
(VmHWM): while submissions come in, it must not grow with the number of clients, only with the memory budget that the
server's file gives; beside that there are the sum and the submission that is being added. The exit code tells.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import trio
from rich.table import Table

from fsl_async import Dense, Ring, Task
from parties.files.models import load_model
from parties.schedule import ORDINARY_MEMORY

from .children import Child, python_module
from .crowd_process import name_of, update_of
from .one_round import LIBERAL, WrongSumError
from .site import SERVERS, UNIT, Site, lay_out
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


Progressed: TypeAlias = Callable[[int], None]


@dataclass
class Large:
    """One round of large submissions.

    Attributes:
        site: where its files are.
        clients: how many there are.
        progress: hears how many submissions are in.
        seconds: by client, from the moment its submission may leave until it has both receipts.
        at_start: by server, the most memory that it had when it began to listen.
        at_receipt: likewise, when the last client had its receipts; later comes the sum.
        at_end: likewise, when the round was settled.
        open_round: set when both servers listen.
    """

    site: Site
    clients: int
    progress: Progressed
    seconds: dict[str, float] = field(default_factory=dict)
    at_start: list[int] = field(default_factory=lambda: [0, 0])
    at_receipt: list[int] = field(default_factory=lambda: [0, 0])
    at_end: list[int] = field(default_factory=lambda: [0, 0])
    counted: list[int] = field(default_factory=lambda: [0, 0])
    servers: list[Child] = field(default_factory=list)
    members: list[Child] = field(default_factory=list)
    listening: list[trio.Event] = field(default_factory=lambda: [trio.Event(), trio.Event()])
    ready: list[trio.Event] = field(default_factory=list)
    submitted: list[trio.Event] = field(default_factory=list)

    async def run(self, seed: int, way: str) -> None:
        """Live through the round.

        Raises:
            ChildFailedError: a process failed.
        """
        async with trio.open_nursery() as nursery:
            for index, name in enumerate(SERVERS):
                command = python_module("tests.system.soak.server_process", self.site.server_file(index))
                self.servers.append(Child(name, command, self.site.log(name), partial(self._from_server, index)))
                nursery.start_soon(self.servers[-1].run_well)
            for event in self.listening:
                await event.wait()
            for number in range(self.clients):
                self.ready.append(trio.Event())
                self.submitted.append(trio.Event())
                arguments = (self.site.folder, number, number + 1, seed)
                command = python_module("tests.system.soak.crowd_process", *arguments)
                log = self.site.log(name_of(number))
                self.members.append(Child(name_of(number), command, log, partial(self._from_client, number)))
                nursery.start_soon(self.members[-1].run_well)
            for event in self.ready:
                await event.wait()
            for member, submitted in zip(self.members, self.submitted, strict=True):
                member.send(signal.SIGUSR1)
                if way == WAYS[0]:
                    await submitted.wait()

    def _from_server(self, index: int, told: dict[str, Any]) -> None:
        if "listens" in told:
            self.at_start[index] = self.servers[index].peak_memory()
            self.listening[index].set()
        elif "settled" in told:
            self.at_end[index] = told["memory"]
            self.counted[index] = told["counted"]

    def _from_client(self, number: int, told: dict[str, Any]) -> None:
        if "ready" in told:
            self.ready[number].set()
        elif "submitted" in told:
            self.seconds[told["submitted"]] = told["seconds"]
            self.at_receipt = [server.peak_memory() for server in self.servers]
            self.submitted[number].set()
            self.progress(len(self.seconds))

    def check(self, task: Task, seed: int) -> None:
        """Compare both servers' models with the sum in the clear.

        Raises:
            WrongSumError: they differ, or somebody was not counted.
        """
        if self.counted != [self.clients] * 2:
            raise WrongSumError(f"{self.counted} of {self.clients} clients were counted")
        total = sum(update_of(task, seed, number)["body"] for number in range(self.clients))
        expected = load_model(self.site.start_model)["body"] + total * UNIT
        for index, name in enumerate(SERVERS):
            if not np.array_equal(load_model(self.site.final_model(index))["body"], expected):
                raise WrongSumError(f"{name}: the model is not the start and the sum in the clear")


async def measure(folder: Path, way: str, options: argparse.Namespace, progress: Progressed) -> dict[str, Any]:
    """One way of sending, in a deployment of its own."""
    task = large_task(options.weights, options.clients)
    names = [name_of(number) for number in range(options.clients)]
    limits = {**LIBERAL, "memory_bytes": options.memory * MIB, "queue_seconds": 3_000.0}
    rounds = {"clients": options.clients, "count": 1}
    site = lay_out(folder, task, names, rounds, np.random.default_rng(options.seed), limits=limits)
    large = Large(site, options.clients, progress)
    started = time.monotonic()
    await large.run(options.seed, way)
    took = time.monotonic() - started
    large.check(task, options.seed)
    return {
        "way": way,
        "seconds": took,
        "submit_seconds": list(large.seconds.values()),
        "memory_at_start_mib": [memory / MIB for memory in large.at_start],
        "memory_at_last_receipt_mib": [memory / MIB for memory in large.at_receipt],
        "peak_memory_mib": [memory / MIB for memory in large.at_end],
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
                ways.append(trio.run(measure, Path(folder), way, options, partial(progress, f"submissions in, {way}")))
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
        "sent",
        "seconds to both receipts",
        *(f"{name}, MiB: start, receipts, sum" for name in SERVERS),
        title=title,
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
