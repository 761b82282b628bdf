"""A deployment under test: two servers and some clients as processes, each in its own home, wherever it is told to be.

What operators exchange by hand is written into the homes beforehand; docs/deploy.md and its test show how that is done.
"""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fsl_async.task import Task
from parties.files.models import load_model
from tests.support.serving import ENDS_WITHIN, Ended, Process, processes
from tests.support.shop import TASK, Basket, assert_equal, plain_sum
from tests.support.town import deploy

SERVERS = ("s0", "s1")


@dataclass
class Homes:
    """A home for everybody.

    Attributes:
        folder: where the homes are.
    """

    folder: Path

    def home(self, name: str) -> Path:
        """A party's home."""
        return self.folder / name

    def models(self, name: str) -> list[Path]:
        """The models that a server has saved after its rounds, the oldest first."""
        return sorted((self.home(name) / "models").glob("*.npz"))

    def assert_sum(self, *clients: str, task: Task = TASK) -> None:
        """Both servers save a model; the last is what these clients, each as often as it is named, have added."""
        for name in SERVERS:
            end = time.monotonic() + ENDS_WITHIN
            while not self.models(name):
                assert time.monotonic() < end, f"{name} has saved no model"
                time.sleep(0.05)
            assert_equal(load_model(self.models(name)[-1]), plain_sum(clients, task))

    def lay_out(self, addresses: Sequence[str], clients: Sequence[str], task: Task = TASK, **keys: Any) -> None:
        """Write everybody's files: the model is zeros, and each client's update is its basket.

        Args:
            addresses: where S0 and S1 are reached.
            clients: the clients' names.
            task: what is learnt.
            keys: further keys of both servers' files.
        """
        (together := self.folder / "together").mkdir()
        zeros = {block.name: np.zeros(block.shape) for block in task.blocks}
        keys = {"checkpoints": "models"} | keys
        deploy(together, clients, addresses, task=task, start=zeros, servers=SERVERS, **keys)
        for name in (*SERVERS, *clients):
            self.home(name).mkdir()
            for file in (f"{name}.key", f"{name}.toml", "task.toml", "clients.toml", "model.npz"):
                shutil.copy(together / file, self.home(name))
            Basket(name, task).save(self.home(name) / "update.npz")
        for name in clients:
            with (self.home(name) / f"{name}.toml").open("a") as file:
                file.write(f'state = "{name}.sqlite"\n')
        shutil.rmtree(together)


@dataclass
class Deployed(Homes):
    """Two servers and their clients.

    Attributes:
        launch: starts a process.
        within: by party, the words that run a command where the party is; none for here.
        running: by party, its process.
    """

    launch: Callable[..., Process]
    within: Mapping[str, Sequence[str]] = field(default_factory=dict)
    running: dict[str, Process] = field(default_factory=dict)

    def serve(self, name: str) -> None:
        """Start a server."""
        self.start(name, name, "serve", f"{name}.toml")

    def start(self, name: str, home: str, *words: str, **options: Any) -> Process:
        """Start a command in somebody's home; what it says goes to `NAME.log`, after what was said before."""
        self.home(name).mkdir(exist_ok=True)
        options |= {"within": self.within.get(name, ()), "log": self.home(name) / f"{name}.log"}
        self.running[name] = self.launch(self.home(home), *words, **options)
        return self.running[name]

    def stop(self, name: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a server a signal, and wait for its end; returns its exit code."""
        return self.running.pop(name).stop(number).code

    def ended(self, name: str) -> int:
        """Wait for a server's end; returns its exit code."""
        return self.running.pop(name).ended().code

    def log(self, name: str) -> str:
        """All that a server has logged."""
        return (self.home(name) / f"{name}.log").read_text()

    def until(self, name: str, pattern: str, times: int = 1) -> None:
        """Wait until so many lines match of what a server has logged since it was started."""
        self.running[name].until(pattern, times)

    def run(self, name: str, *words: str) -> Ended:
        """Run a command in a party's home."""
        return self.launch(self.home(name), *words, within=self.within.get(name, ())).ended()

    def submit(self, client: str) -> Ended:
        """Submit a client's update; the client is as patient as the test."""
        return self.run(client, "submit", f"{client}.toml", "--update", "update.npz", "--patience", str(ENDS_WITHIN))


@contextmanager
def deployed(folder: Path, **words: Any) -> Iterator[Deployed]:
    """A deployment whose processes do not outlive the block."""
    with processes() as start:
        yield Deployed(folder, start, **words)
