"""The files of a deployment on this machine: keys, task, client list, model, and each server's own file.

What operators would exchange by hand is written into one folder; the parties find everything there.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fsl_async import Dense, Task
from fsl_async.task import Block
from parties.client.setup import ClientSetup
from parties.compute import ThreadLane
from parties.files.models import save_model
from parties.identity.keys import Identity
from parties.settings.task_file import Deployment
from parties.settings.writing import free_addresses, to_toml, write_deployment
from parties.watch import silent
from transport import Kind, TcpTransport

Model = dict[str, npt.NDArray[Any]]

SERVERS = ("S0", "S1")
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


def lay_out(
    folder: Path, task: Task, clients: Sequence[str], rounds: Mapping[str, Any], rng: np.random.Generator, **more: Any
) -> Site:
    """Write everything that a deployment needs.

    Args:
        folder: where to; it exists.
        task: what is learnt.
        clients: whom the servers let in.
        rounds: the table `rounds` of both servers' files.
        rng: draws the model.
        more: further keys of both servers' files.
    """
    site = Site(folder)
    identities = {name: Identity.generate(name) for name in (*SERVERS, *clients)}
    for name, identity in identities.items():
        identity.save(site.key(name))
    public = [identity.public for identity in identities.values()]
    addresses = free_addresses(2)
    write_deployment(folder, task, public[:2], addresses, public[2:])
    save_model(site.start_model, {block.name: _weights(block, rng) for block in task.blocks})
    for server, address in enumerate(addresses):
        table = {
            "server": server,
            "identity": site.key(SERVERS[server]).name,
            "task": site.task_file.name,
            "clients": "clients.toml",
            "model": site.start_model.name,
            "listen": address,
            "store": site.state(SERVERS[server]).name,
            **more,
            "rounds": dict(rounds),
        }
        site.server_file(server).write_text(to_toml(table))
    return site


def client_setup(site: Site, name: str, **more: Any) -> ClientSetup:
    """What a client of the deployment is made of, one that stores nothing; `more` says what is out of the ordinary."""
    deployment = Deployment.load(site.task_file)
    ordinary = {"transport": TcpTransport(), "lane": ThreadLane(1)}
    return ClientSetup(
        task=deployment.task,
        identity=Identity.load(site.key(name)),
        servers=deployment.identities,
        addresses=deployment.addresses,
        randomness=os.urandom,
        kind=Kind.LIVE,
        watch=silent,
        **(ordinary | more),
    )


def shape_of(block: Block) -> tuple[int, ...]:
    """The shape of a block's array."""
    return (block.size,) if isinstance(block, Dense) else (block.rows, block.width)


def say(**told: Any) -> None:
    """As a child, tell the parent something; it has it even if this process is killed the moment after."""
    print(json.dumps(told), flush=True)


def peak_memory(process: int | str = "self") -> int:
    """The most bytes that a process has had in memory so far (VmHWM); one that has ended tells no more."""
    status = Path(f"/proc/{process}/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def _weights(block: Block, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    return rng.integers(-1000, 1000, size=shape_of(block)) * UNIT
