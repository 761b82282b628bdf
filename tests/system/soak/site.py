"""The files of a deployment on this machine: keys, task, client list, model, and each server's own file.

What operators would exchange by hand is written into one folder; the parties find everything there.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fsl_async import Task
from parties.commands.demo.processes import SERVERS
from tests.support.town import deploy

UNIT = 2.0**-8
"""What every weight and every update is a multiple of: sums of them are exact in double precision."""


@dataclass(frozen=True)
class Site:
    """A folder in which a deployment is laid out."""

    folder: Path

    @property
    def task_file(self) -> Path:
        """What all parties share."""
        return self.folder / "task.toml"

    @property
    def start_model(self) -> Path:
        """The model that both servers start from."""
        return self.folder / "model.npz"

    @property
    def diary(self) -> Path:
        """Everything that processes told and that was done to them, in order."""
        return self.folder / "diary.jsonl"

    def key(self, name: str) -> Path:
        """A party's secret keys."""
        return self.folder / f"{name}.key"

    def log(self, name: str) -> Path:
        """What a party says."""
        return self.folder / f"{name}.log"

    def state(self, name: str) -> Path:
        """What a party must not forget."""
        return self.folder / f"{name}.sqlite"

    def ledger(self, name: str) -> Path:
        """What a client notes of its own doings."""
        return self.folder / f"{name}.ledger"

    def accounts(self, index: int) -> Path:
        """What a server tells of all rounds."""
        return self.folder / f"accounts-{SERVERS[index]}.json"

    def server_file(self, index: int) -> Path:
        """A server's own file."""
        return self.folder / f"{SERVERS[index]}.toml"

    def final_model(self, index: int) -> Path:
        """A server's model after its last round."""
        return self.folder / f"final-{SERVERS[index]}.npz"


def lay_out(folder: Path, task: Task, clients: Sequence[str], rng: np.random.Generator, **keys: Any) -> Site:
    """Write everything that a deployment needs: the model is drawn, and has multiples of `UNIT`."""
    start = {block.name: rng.integers(-1000, 1000, size=block.shape) * UNIT for block in task.blocks}
    deploy(folder, clients, task=task, start=start, **{"threads": 0} | keys)
    return Site(folder)


def say(**told: Any) -> None:
    """As a child, tell the parent something; it has it even if this process is killed the moment after."""
    print(json.dumps(told), flush=True)
