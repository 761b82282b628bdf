"""A deployment of two servers and some clients as processes on this machine, and what each of them takes in a round.

The servers are those of `fsl-async serve`, with stores and blobs on disk; the clients' process is
`parties.commands.bench.members`. Two rounds are run: in the first a server loads its kernels, and it does not
count. The models of both servers are compared with the sum in the clear: a measurement of a wrong result is none.
"""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import trio

from fsl_async.errors import FslError
from fsl_async.ring import Ring
from fsl_async.task import Sparse, Task
from parties.commands.bench.machine import Spent, memory_of, spent_by
from parties.commands.bench.members import name_of, update_of
from parties.commands.demo.processes import SERVERS, serve, started, write_parties, write_server
from parties.files.models import load_model, save_model
from parties.settings.writing import free_addresses

STARTING_SECONDS = 120.0


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


@dataclass(frozen=True)
class Deployed:
    """What is deployed.

    Attributes:
        task: what is learnt; its numbers are whole.
        clients: how many take part.
        threads: of each server's lane; 0: as many as there are processors.
        rounds: how many are run; the last one is measured.
        together: so many clients connect and submit at a time; more in one process would only wait for each other.
        retrieves: whether each client retrieves the rows of its update first.
    """

    task: Task
    clients: int
    threads: int = 0
    rounds: int = 2
    together: int = 64
    retrieves: bool = False


@dataclass
class RoundTaken:
    """What one round took.

    Attributes:
        spent: by server, the seconds of its process's threads until the last receipt, and until all knew the outcome.
        receipts: seconds until the last client had both receipts.
        ending: seconds from the moment when both servers had evaluated and compared all until both were done.
        outcome: seconds until the last client had the outcome.
        clients: processor seconds of all clients.
        memory: by server, the bytes that its own process had before the round, and the most until the last receipt,
            and until all knew the outcome.
        written: bytes that both servers' processes gave to the disk.
    """

    spent: list[list[Spent]] = field(default_factory=lambda: [[], []])
    receipts: float = 0.0
    ending: float = 0.0
    outcome: float = 0.0
    clients: float = 0.0
    memory: list[list[int]] = field(default_factory=list)

    def until(self, moment: int) -> Spent:
        """Of one server's process, on average over both: 0: until the last receipt, 1: until the outcome."""
        return sum((spent[moment] for spent in self.spent), Spent()).over(2)


def take_rounds(deployed: Deployed) -> RoundTaken:
    """Run the rounds and measure the last one.

    Raises:
        FslError: a process failed, a client was not counted, or a model is wrong.
    """
    with tempfile.TemporaryDirectory(prefix="fsl-bench-server-") as name:
        folder = Path(name)
        lay_out(folder, deployed)
        return trio.run(_Run(folder, deployed).run)


# ---- files


def lay_out(folder: Path, deployed: Deployed) -> None:
    """Write all files of a deployment: keys, the task, both servers' own."""
    addresses, many = free_addresses(2), 4 * deployed.clients + 100
    write_parties(folder, deployed.task, addresses, [name_of(number) for number in range(deployed.clients)])
    save_model(folder / "model.npz", _start(deployed.task))
    # All clients come from one address, and at once.
    limits = {"handshakes_per_second": 1e6, "burst": many, "half_open": many, "idle_seconds": 3_600.0}
    rounds = {"clients": deployed.clients, "wind_up": 0.0}
    common: dict[str, Any] = {"threads": deployed.threads, "limits": limits, "rounds": rounds}
    for server, address in enumerate(addresses):
        write_server(folder, server, address, save_model=f"{SERVERS[server]}.npz", **common)


def _start(task: Task) -> dict[str, Any]:
    return {block.name: np.zeros(block.shape, dtype=np.int64) for block in task.blocks}


# ---- processes


class _Run:
    """The rounds of a deployment while they run."""

    def __init__(self, folder: Path, deployed: Deployed) -> None:
        self.folder = folder
        self.deployed = deployed
        self.pids: list[int] = []
        self.taken = RoundTaken()
        self.before: list[Spent] = []
        self.spent_before = 0.0
        self.ready = trio.Event()
        self.round = 0
        self.moments: dict[str, float] = {}

    async def run(self) -> RoundTaken:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(STARTING_SECONDS):
                servers = [await nursery.start(serve, self.folder, name, self._from_server) for name in SERVERS]
            self.pids = [each.pid for each in servers]
            await self._take_part()
            for each in servers:
                each.terminate()
        self._check()
        return self.taken

    async def _take_part(self) -> None:
        words = ["parties.commands.bench.members", str(self.folder), str(self.deployed.clients)]
        words += [str(self.deployed.rounds), str(self.deployed.together)]
        words += ["retrieve"] if self.deployed.retrieves else []
        async with started("clients", words, self._from_members) as members, trio.open_nursery() as nursery:
            nursery.start_soon(members.hear)
            assert members.process.stdin is not None  # noqa: S101 - asked for
            for number in range(1, self.deployed.rounds + 1):
                await self.ready.wait()
                self.ready, self.round = trio.Event(), number
                self.before = [spent_by(pid) for pid in self.pids]
                self.moments.clear()
                self.taken = RoundTaken(memory=[[memory_of(pid)[0]] for pid in self.pids])
                await members.process.stdin.send_all(b"go\n")
        self.taken.ending = self.moments["Done"] - self.moments["Verified"]

    def _from_server(self, line: str) -> None:
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        match told:
            case {"event": "round moved", "round": number, "state": state} if number == self.round:
                self.moments[state] = time.perf_counter()  # of the two the later one

    def _from_members(self, line: str) -> None:
        told: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
        match told:
            case {"ready": _}:
                self.ready.set()
            case {"received": _, "seconds": seconds}:
                self.taken.receipts = seconds
                self._note()
            case {"told": _, "seconds": seconds, "spent": spent}:
                self.taken.outcome = seconds
                self.taken.clients, self.spent_before = spent - self.spent_before, spent
                self._note()

    def _note(self) -> None:
        taken = self.taken
        for pid, spent, before, memory in zip(self.pids, taken.spent, self.before, taken.memory, strict=True):
            spent.append(spent_by(pid) - before)
            memory.append(memory_of(pid)[1])

    def _check(self) -> None:
        """Both models are the sum of all updates."""
        task = self.deployed.task
        total = _start(task)
        for number in range(1, self.deployed.rounds + 1):
            for place in range(self.deployed.clients):
                for name, update in update_of(task, number, place).items():
                    if isinstance(update, tuple):
                        total[name][update[0]] += update[1]
                    else:
                        total[name] += update
        for server in SERVERS:
            model = load_model(self.folder / f"{server}.npz")
            for block in task.blocks:
                if not np.array_equal(model[block.name], total[block.name]):
                    raise FslError(f"{server}: the model is not the sum in the clear: this must never happen")
