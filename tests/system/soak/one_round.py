"""Rounds of a deployment in processes, measured: what the crowd and the large round have in common.

Clients make their submissions first and hold them back; the clock runs from the moment they are let go until both
servers have settled the round, and for each client until it has both receipts. The sum is compared with the same sum
in the clear: a measurement of a wrong result is none.
"""

import itertools
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio

from fsl_async import Task
from parties.concurrency import RecurringEvent
from parties.files.models import load_model

from .children import Child, python_module
from .crowd_process import name_of, update_of
from .site import SERVERS, UNIT, Site, lay_out, shape_of

LIBERAL = {"handshakes_per_second": 10_000.0, "burst": 10_000, "half_open": 10_000, "idle_seconds": 3_600.0}
"""All clients come from one address here, and wait for each other: the limits must let them."""


class WrongSumError(Exception):
    """The round's result is not the sum of what was submitted."""


@dataclass(frozen=True)
class Crowd:
    """Who takes part.

    Attributes:
        clients: how many.
        processes: in how many they are.
        rounds: in how many of them they take part.
        seed: of model and updates.
        rest: seconds before each round but the first, in which the servers' stores keep house after the last one.
        over: seconds over which each process lets its submissions go; 0: all at the same moment.
        in_turn: whether a process lets its submissions go once those of the one before have their receipts.
        limits: the servers'.
    """

    clients: int
    processes: int
    rounds: int
    seed: int
    rest: float = 0.0
    over: float = 0.0
    in_turn: bool = False
    limits: Mapping[str, float] = field(default_factory=lambda: LIBERAL)


@dataclass
class Measured:
    """What a round took.

    Attributes:
        done: by server, seconds from the gate until its round was done: the model is there, clients can be told.
        settled: likewise until all of that was durable, what is to be erased erased, and the next round could begin.
        processor: seconds of all processors, of both servers and of all clients, until both were done and had settled.
        submit: by client, seconds from the gate until it had both receipts.
        sent: bytes that a client's submission took on the wire, by client.
        at_start: by server, the most bytes it had in memory when it began to listen.
        at_receipt: likewise, when the last client had its receipts; later comes the sum.
        memory: likewise, when it had settled.
        seconds: by server and kind of work, where its time went.
        said: by server and kind of message, seconds from the gate until the first one left for the other server.
        counted: how many clients the round counted.
        told: who was told so.
    """

    done: list[float] = field(default_factory=lambda: [0.0, 0.0])
    settled: list[float] = field(default_factory=lambda: [0.0, 0.0])
    processor: dict[str, float] = field(default_factory=dict)
    submit: dict[str, float] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    at_start: list[int] = field(default_factory=lambda: [0, 0])
    at_receipt: list[int] = field(default_factory=lambda: [0, 0])
    memory: list[int] = field(default_factory=lambda: [0, 0])
    seconds: list[dict[str, float]] = field(default_factory=lambda: [{}, {}])
    said: list[dict[str, float]] = field(default_factory=lambda: [{}, {}])
    counted: int = 0
    told: set[str] = field(default_factory=set)


class _Run:
    """What the parent hears of its rounds."""

    def __init__(self, crowd: Crowd, progress: Callable[[str, int], None]) -> None:
        self.clients = crowd.clients
        self.rounds = rounds = crowd.rounds
        self.progress = progress
        self.measured = [Measured() for _ in range(rounds)]
        self.all_ready = [trio.Event() for _ in range(rounds)]
        self.opened_at: list[float] = []
        self.ready = [0] * rounds
        self.servers: list[Child] = []
        self.members: list[Child] = []
        self.before: dict[str, float] = {}
        self._spent: list[dict[str, float]] = [{}, {}]
        self._submitted = RecurringEvent()

    async def open_gate(self, in_turn: bool) -> None:
        """Let the submissions go that wait."""
        self.before = self.processor()
        self.opened_at.append(time.monotonic())
        for child in self.members:
            submitted = self._submitted.next
            child.send(signal.SIGUSR1)
            if in_turn:
                await submitted.wait()

    def processor(self) -> dict[str, float]:
        """What everybody has had of the processors so far, in seconds."""
        parties = {"servers": self.servers, "clients": self.members}
        return {name: sum(child.processor_seconds() for child in parties[name]) for name in parties}

    def spent(self, until: str) -> dict[str, float]:
        """What everybody has had of them since the gate was opened."""
        return {f"{name}, until {until}": now - self.before[name] for name, now in self.processor().items()}

    def from_server(self, index: int, told: dict[str, Any]) -> None:
        match told:
            case {"state": "Done", "round": number, "clock": clock}:
                measured = self.measured[number - 1]
                measured.done[index] = clock - self.opened_at[number - 1]
                if all(measured.done):
                    measured.processor |= self.spent("done")
            case {"settled": number, "clock": clock, "counted": counted, "seconds": seconds, "memory": memory}:
                measured = self.measured[number - 1]
                measured.settled[index] = clock - self.opened_at[number - 1]
                measured.memory[index] = memory
                measured.counted = counted
                before, self._spent[index] = self._spent[index], seconds
                if all(measured.settled):
                    measured.processor |= self.spent("settled")
                measured.seconds[index] = {kind: spent - before.get(kind, 0.0) for kind, spent in seconds.items()}
            case {"sends": kind, "clock": clock} if self.opened_at and not kind.startswith("Toss"):
                said = self.measured[len(self.opened_at) - 1].said[index]
                said.setdefault(kind, clock - self.opened_at[-1])

    def from_clients(self, told: dict[str, Any]) -> None:
        match told:
            case {"ready": count, "round": number}:
                self.ready[number - 1] += count
                self.progress("submissions made", sum(self.ready))
                if self.ready[number - 1] == self.clients:
                    self.all_ready[number - 1].set()
            case {"submitted": client, "round": number, "seconds": seconds, "bytes_sent": sent}:
                measured = self.measured[number - 1]
                measured.submit[client] = seconds
                measured.sent[client] = sent
                measured.at_receipt = [server.peak_memory() for server in self.servers]
                self._submitted.set()
                self.progress("submissions in", sum(len(measured.submit) for measured in self.measured))
            case {"told": client, "round": number, "counted": True}:
                self.measured[number - 1].told.add(client)


async def start_servers(site: Site, nursery: trio.Nursery, heard: Callable[[int, dict[str, Any]], None]) -> list[Child]:
    """Both servers, once they listen; `heard` takes what each of them tells."""
    servers, listening = [], [trio.Event(), trio.Event()]

    def hear(index: int, told: dict[str, Any]) -> None:
        if "listens" in told:
            listening[index].set()
        heard(index, told)

    for index, name in enumerate(SERVERS):
        command = python_module("tests.system.soak.server_process", site.server_file(index))
        servers.append(Child(name, command, site.log(name), partial(hear, index)))
        nursery.start_soon(servers[-1].run_well)
    for event in listening:
        await event.wait()
    return servers


async def measure(folder: Path, task: Task, crowd: Crowd, progress: Callable[[str, int], None]) -> list[Measured]:
    """Run some rounds and measure each; the first one in a server's life includes that its kernels are loaded.

    Args:
        folder: where the deployment is laid out.
        task: what is learnt.
        crowd: who takes part.
        progress: hears how far it is: of what, how many.

    Raises:
        WrongSumError: a client was not counted, or the result is not the sum.
        ChildFailedError: a process failed.
    """
    names = [name_of(number) for number in range(crowd.clients)]
    rounds = {"clients": crowd.clients, "count": crowd.rounds}
    site = lay_out(folder, task, names, rounds, np.random.default_rng(crowd.seed), limits=crowd.limits)
    run = _Run(crowd, progress)
    async with trio.open_nursery() as nursery:
        run.servers = await start_servers(site, nursery, run.from_server)
        run.measured[0].at_start = [server.peak_memory() for server in run.servers]
        run.members = _start_clients(site, run, crowd)
        for child in run.members:
            nursery.start_soon(child.run_well)
        for number, ready in enumerate(run.all_ready):
            await ready.wait()
            await trio.sleep(crowd.rest if number else 0.0)
            await run.open_gate(crowd.in_turn)
    _check(site, task, run, crowd.seed)
    return run.measured


def _start_clients(site: Site, run: _Run, crowd: Crowd) -> list[Child]:
    cuts = [crowd.clients * cut // crowd.processes for cut in range(crowd.processes + 1)]
    more = ("--rounds", crowd.rounds, "--over", crowd.over)
    return [
        Child(
            f"clients {first} to {last - 1}",
            python_module("tests.system.soak.crowd_process", site.folder, first, last, crowd.seed, *more),
            site.log(f"clients-{first}"),
            run.from_clients,
        )
        for first, last in itertools.pairwise(cuts)
    ]


def _check(site: Site, task: Task, run: _Run, seed: int) -> None:
    """Everybody is counted and told so, and both servers' models are the start and the sum of all updates."""
    for number, measured in enumerate(run.measured, start=1):
        if not measured.counted == len(measured.told) == run.clients:
            numbers = f"{measured.counted} of {run.clients} clients were counted, {len(measured.told)} were told so"
            raise WrongSumError(f"round {number}: {numbers}")
    total = _total(task, run, seed)
    start = load_model(site.start_model)
    for index in (0, 1):
        final = load_model(site.final_model(index))
        for name, units in total.items():
            wrong = int(np.count_nonzero(final[name] != start[name] + units * UNIT))
            if wrong:
                raise WrongSumError(f"{SERVERS[index]}: {wrong} weights of {name!r} differ from the sum in the clear")


def _total(task: Task, run: _Run, seed: int) -> dict[str, Any]:
    """All updates of all rounds, in units, added in the clear."""
    total: dict[str, Any] = {block.name: np.zeros(shape_of(block), dtype=np.int64) for block in task.blocks}
    for round_number, number in itertools.product(range(1, run.rounds + 1), range(run.clients)):
        for name, update in update_of(task, seed, number, round_number).items():
            if isinstance(update, tuple):
                total[name][update[0]] += update[1]
            else:
                total[name] += update
    return total
