"""One round of a deployment in processes, measured: what the crowd and the large round have in common.

Clients make their submissions first and hold them back; the clock runs from the moment they are let go until both
servers have settled the round, and for each client until it has both receipts. The sum is compared with the same sum
in the clear: a measurement of a wrong result is none.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio

from fsl_async import Task
from parties.model_files import load_model

from .children import Child, python_module
from .crowd_process import name_of, update_of
from .site import SERVERS, UNIT, Site, lay_out, shape_of

__all__ = ["LIBERAL", "Measured", "WrongSumError", "measure"]

LIBERAL = {"handshakes_per_second": 10_000.0, "burst": 10_000, "half_open": 10_000}
"""All clients come from one address here: the limits per address must let them."""


class WrongSumError(Exception):
    """The round's result is not the sum of what was submitted."""


@dataclass
class Measured:
    """What a round took.

    Attributes:
        settled: by server, seconds from the gate until the round was settled.
        submit: by client, seconds from the gate until it had both receipts.
        sent: bytes that a client's submission took on the wire, by client.
        memory: by server, the most bytes it had in memory.
        seconds: by server and kind of work, where its time went.
        said: by server and kind of message, seconds from the gate until the first one left for the other server.
        counted: how many clients the round counted.
    """

    settled: list[float] = field(default_factory=lambda: [0.0, 0.0])
    submit: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    memory: list[int] = field(default_factory=lambda: [0, 0])
    seconds: list[dict[str, float]] = field(default_factory=lambda: [{}, {}])
    said: list[dict[str, float]] = field(default_factory=lambda: [{}, {}])
    counted: int = 0


class _Run:
    """What the parent hears of one round."""

    def __init__(self, clients: int, progress: Callable[[str, int], None]) -> None:
        self.clients = clients
        self.progress = progress
        self.measured = Measured()
        self.listening = [trio.Event(), trio.Event()]
        self.all_ready = trio.Event()
        self.opened_at = 0.0
        self.ready = 0
        self.told: dict[str, bool] = {}
        self.servers: list[Child] = []

    def from_server(self, index: int, told: dict[str, Any]) -> None:
        if "listens" in told:
            self.listening[index].set()
        elif "settled" in told:
            self.measured.settled[index] = told["clock"] - self.opened_at
            self.measured.memory[index] = self.servers[index].peak_memory()
            self.measured.counted = len(told["clients"])
        elif "sends" in told:
            self.measured.said[index].setdefault(told["sends"], told["clock"] - self.opened_at)
        elif "seconds" in told:
            self.measured.seconds[index] = told["seconds"]

    def from_clients(self, told: dict[str, Any]) -> None:
        if "ready" in told:
            self.ready += told["ready"]
            self.progress("submissions made", self.ready)
            if self.ready == self.clients:
                self.all_ready.set()
        elif "submitted" in told:
            self.measured.submit[told["submitted"]] = told["seconds"]
            self.measured.sent[told["submitted"]] = told["bytes_sent"]
            self.progress("submissions in", len(self.measured.submit))
        elif "told" in told:
            self.told[told["told"]] = told["counted"]


async def measure(
    folder: Path,
    task: Task,
    clients: int,
    processes: int,
    seed: int,
    progress: Callable[[str, int], None],
    **server: Any,
) -> Measured:
    """Run one round and measure it.

    Args:
        folder: where the deployment is laid out.
        task: what is learnt.
        clients: how many take part.
        processes: in how many processes the clients are.
        seed: of model and updates.
        progress: hears how far it is: of what, how many.
        server: further keys of the servers' files.

    Raises:
        WrongSumError: a client was not counted, or the result is not the sum.
        ChildFailedError: a process failed.
    """
    names = [name_of(number) for number in range(clients)]
    site = lay_out(
        folder, task, names, {"clients": clients, "count": 1}, np.random.default_rng(seed), limits=LIBERAL, **server
    )
    run = _Run(clients, progress)
    async with trio.open_nursery() as nursery:
        for index in (0, 1):
            command = python_module("tests.soak.server_process", site.server_file(index))
            child = Child(SERVERS[index], command, site.log(SERVERS[index]), partial(run.from_server, index))
            run.servers.append(child)
            nursery.start_soon(child.run_well)
        for event in run.listening:
            await event.wait()
        crowd = _start_clients(site, run, processes, seed)
        for child in crowd:
            nursery.start_soon(child.run_well)
        await run.all_ready.wait()
        run.opened_at = time.monotonic()
        for child in crowd:
            child.send(signal.SIGUSR1)
    _check(site, task, run, seed)
    return run.measured


def _start_clients(site: Site, run: _Run, processes: int, seed: int) -> list[Child]:
    cuts = [run.clients * cut // processes for cut in range(processes + 1)]
    return [
        Child(
            f"clients {first} to {last - 1}",
            python_module("tests.soak.crowd_process", site.folder, first, last, seed),
            site.log(f"clients-{first}"),
            run.from_clients,
        )
        for first, last in itertools.pairwise(cuts)
    ]


def _check(site: Site, task: Task, run: _Run, seed: int) -> None:
    """Everybody is counted and told so, and both servers' models are the start and the sum of all updates."""
    missing = [name_of(number) for number in range(run.clients) if not run.told.get(name_of(number))]
    if missing or run.measured.counted != run.clients:
        raise WrongSumError(f"{run.measured.counted} of {run.clients} clients were counted; not told so: {missing[:5]}")
    total: dict[str, Any] = {block.name: np.zeros(shape_of(block), dtype=np.int64) for block in task.blocks}
    for number in range(run.clients):
        for name, update in update_of(task, seed, number).items():
            if isinstance(update, tuple):
                total[name][update[0]] += update[1]
            else:
                total[name] += update
    start = load_model(site.start_model)
    for index in (0, 1):
        final = load_model(site.final_model(index))
        for name, units in total.items():
            wrong = int(np.count_nonzero(final[name] != start[name] + units * UNIT))
            if wrong:
                raise WrongSumError(f"{SERVERS[index]}: {wrong} weights of {name!r} differ from the sum in the clear")
