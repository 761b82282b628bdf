"""A deployment under test: two servers and some clients as processes, each in its own home, wherever it is told to be.

What operators exchange by hand is written into the homes beforehand; docs/deploy.md and its test show how that is done.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async.ring import Ring
from fsl_async.task import Sparse, Task
from parties.files.models import load_model, save_model
from parties.identity.keys import Identity
from parties.settings.writing import to_toml, write_deployment
from tests import ROOT

SERVERS = ("s0", "s1")
ROWS, WIDTH = 200, 2
TASK = Task(
    name="trial",
    blocks=(Sparse(name="items", rows=ROWS, width=WIDTH, select=4),),
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=16,
)
PATIENCE = 240.0
"""Seconds for what should take a few: what hangs ends by this, and not by the limit of its test, which shows no log."""


@dataclass
class Ended:
    """How a command ended: its code, the JSON object that it printed, and what it said besides."""

    code: int
    said: Any
    words: str


@dataclass
class Deployed:
    """Two servers and their clients.

    Attributes:
        folder: where the homes are.
        within: by party, the words that run a command where the party is; none for here.
        running: by party, its process.
    """

    folder: Path
    within: Mapping[str, Sequence[str]] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    # ---- servers

    def serve(self, name: str, **variables: str) -> None:
        """Start a server; what it logs goes to `NAME.log`, after what it has logged before."""
        with (self.home(name) / f"{name}.log").open("a") as log:
            command = self._command(name, "serve", f"{name}.toml")
            environment = self._environment() | variables
            self.running[name] = subprocess.Popen(
                command, cwd=self.home(name), env=environment, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def start(self, name: str, home: str, *words: str) -> None:
        """Start a command in somebody's home; its log and its process have the name that is given first."""
        self.home(name).mkdir(exist_ok=True)
        with (self.home(name) / f"{name}.log").open("a") as log:
            command = self._command(name, *words)
            self.running[name] = subprocess.Popen(
                command, cwd=self.home(home), env=self._environment(), stdout=subprocess.PIPE, stderr=log, text=True
            )

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a server a signal, and wait for its end; returns its exit code."""
        self.running[name].send_signal(number)
        return self.ended(name)

    def ended(self, name: str) -> int:
        """Wait for a server's end; returns its exit code."""
        process = self.running.pop(name)
        process.communicate(timeout=PATIENCE)
        return process.returncode

    def log(self, name: str) -> str:
        """All that a server has logged."""
        return (self.home(name) / f"{name}.log").read_text()

    def until(self, name: str, pattern: str, times: int = 1) -> None:
        """Wait until so many lines of a server's log match."""
        end = time.monotonic() + PATIENCE
        while len(re.findall(pattern, self.log(name), re.MULTILINE)) < times:
            assert name not in self.running or self.running[name].poll() is None, f"{name} has ended:\n{self.log(name)}"
            assert time.monotonic() < end, f"{name} has not logged {pattern!r} {times} times:\n{self.log(name)}"
            time.sleep(0.05)

    # ---- commands

    def run(self, name: str, *words: str) -> Ended:
        """Run a command in a party's home."""
        command = self._command(name, *words, "--format", "json")
        done = subprocess.run(
            command, cwd=self.home(name), env=self._environment(), capture_output=True, text=True, timeout=2 * PATIENCE
        )
        return Ended(done.returncode, json.loads(done.stdout) if done.stdout.strip() else {}, done.stderr)

    def submit(self, client: str, *words: str) -> Ended:
        """Submit a client's update; the client is as patient as the test."""
        words = ("--identity", f"{client}.key", "--update", "update.npz", "--patience", str(PATIENCE), *words)
        return self.run(client, "submit", "task.toml", *words)

    def start_python(self, name: str, code: str) -> subprocess.Popen[str]:
        """Start a program of a party's own, with pipes to talk to it; it ends with the deployment."""
        words = [*self.within.get(name, ()), sys.executable, "-c", code]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        program = subprocess.Popen(words, cwd=self.home(name), env=self._environment(), text=True, **pipes)
        self.running[name] = program
        return program

    # ---- files

    def home(self, name: str) -> Path:
        """A party's home."""
        return self.folder / name

    def models(self, name: str) -> list[npt.NDArray[Any]]:
        """The models that a server has saved after its rounds, the oldest first."""
        paths = sorted((self.home(name) / "models").glob("*.npz"))
        return [load_model(path)["items"] for path in paths]

    def lay_out(self, addresses: Sequence[str], listen: Sequence[str], clients: Sequence[str], **server: Any) -> None:
        """Write everybody's files.

        Args:
            addresses: where S0 and S1 are reached.
            listen: where they listen.
            clients: the clients' names.
            server: further keys of both servers' files.
        """
        identities = {name: Identity.generate(name) for name in (*SERVERS, *clients)}
        public = [identity.public for identity in identities.values()]
        for name, identity in identities.items():
            self.home(name).mkdir()
            identity.save(self.home(name) / f"{name}.key")
            write_deployment(self.home(name), TASK, public[:2], addresses, public[2:])
        for name in clients:
            np.savez(self.home(name) / "update.npz", **{"items.rows": rows_of(name), "items.values": values_of(name)})
            own = {"task": "task.toml", "identity": f"{name}.key", "state": f"{name}.sqlite"}
            (self.home(name) / f"{name}.toml").write_text(to_toml(own))
        for number, name in enumerate(SERVERS):
            save_model(self.home(name) / "model.npz", {"items": np.zeros((ROWS, WIDTH))})
            table = {"server": number, "identity": f"{name}.key", "task": "task.toml", "clients": "clients.toml"}
            table |= {
                "model": "model.npz",
                "listen": listen[number],
                "store": f"{name}.sqlite",
                "checkpoints": "models",
            }
            (self.home(name) / f"{name}.toml").write_text(to_toml(table | server))

    def _command(self, name: str, *words: str) -> list[str]:
        return [*self.within.get(name, ()), sys.executable, "-m", "parties", *words]

    def _environment(self) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(ROOT)}


@contextmanager
def deployed(folder: Path, **words: Any) -> Iterator[Deployed]:
    """A deployment whose servers do not outlive the block."""
    made = Deployed(folder, **words)
    try:
        yield made
    finally:
        for process in made.running.values():
            process.kill()
            process.communicate()


def rows_of(client: str) -> list[int]:
    """The rows that a client updates: some of its own, and one that is everybody's."""
    return [0, *sorted(np.random.default_rng(list(client.encode())).choice(range(1, ROWS), 3, replace=False).tolist())]


def values_of(client: str) -> npt.NDArray[np.float64]:
    """What it adds to them; exact in binary."""
    return np.random.default_rng(list(client.encode())).integers(-999, 999, size=(4, WIDTH)) / 2**8


def sum_of(*clients: str) -> npt.NDArray[np.float64]:
    """What these clients add together, in the clear."""
    total = np.zeros((ROWS, WIDTH))
    for client in clients:
        total[rows_of(client)] += values_of(client)
    return total
