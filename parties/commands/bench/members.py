"""Clients of a measured deployment as one process.

    … -m parties.commands.bench.members FOLDER COUNT ROUNDS TOGETHER [retrieve]

In each round, once a line comes on stdin, every client connects to both servers, retrieves the rows of its update if
that is asked, submits, asks for the outcome, and leaves, each in a task of its own. So many at a time as TOGETHER says
connect and submit; all wait for the outcome together. What is told is JSON, a line each, on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import trio

from fsl_async.errors import FslError
from fsl_async.task import Sparse, Task
from parties.client.client import Client
from parties.client.setup import ClientSetup
from parties.compute import ThreadLane
from parties.identity.keys import Identity
from parties.settings.task_file import Deployment
from parties.watch import silent
from transport import Kind, SocketTransport

SPREAD = 2**12

PATIENCE = 900.0
"""Seconds: all of them wait for each other."""


def name_of(number: int) -> str:
    """What a client is called."""
    return f"client-{number:06}"


def update_of(task: Task, round_number: int, number: int) -> dict[str, Any]:
    """What a client submits: by block its rows, drawn anew for each round, and whole numbers."""
    rng = np.random.default_rng((round_number, number))
    update: dict[str, Any] = {}
    for block in task.blocks:
        if isinstance(block, Sparse):
            rows = rng.choice(block.rows, block.select, replace=False).astype(np.uint32)
            update[block.name] = (rows, rng.integers(-SPREAD, SPREAD, size=(block.select, block.width)))
        else:
            update[block.name] = rng.integers(-SPREAD, SPREAD, size=block.size)
    return update


class _Members:
    """All clients of the process."""

    def __init__(self, folder: Path, count: int, together: int, *, retrieve: bool) -> None:
        self.folder = folder
        self.retrieve = retrieve
        self.deployment = Deployment.load(folder / "task.toml")
        self.identities = [Identity.load(folder / f"{name_of(number)}.key") for number in range(count)]
        self.lane = ThreadLane(1)
        self.turns = trio.CapacityLimiter(together)
        self.left = 0

    async def round(self, number: int) -> None:
        """Take part in a round, all of them."""
        _say(ready=number)
        await trio.to_thread.run_sync(sys.stdin.readline)
        started, self.left = time.perf_counter(), len(self.identities)
        async with trio.open_nursery() as nursery:
            for place, identity in enumerate(self.identities):
                nursery.start_soon(self._take_part, identity, number, place, started)
        _say(told=number, seconds=time.perf_counter() - started, spent=time.process_time())

    async def _take_part(self, identity: Identity, number: int, place: int, started: float) -> None:
        setup = ClientSetup(
            task=self.deployment.task,
            identity=identity,
            servers=self.deployment.identities,
            addresses=self.deployment.addresses,
            transport=SocketTransport(),
            lane=self.lane,
            randomness=os.urandom,
            kind=Kind.LIVE,
            watch=silent,
            patience=PATIENCE,
        )
        async with AsyncExitStack() as life:
            async with self.turns:
                client = await life.enter_async_context(Client(setup))
                update = update_of(self.deployment.task, number, place)
                if self.retrieve:
                    await client.retrieve({name: rows[0] for name, rows in update.items() if isinstance(rows, tuple)})
                await client.submit(update)
            self.left -= 1
            if not self.left:
                _say(received=number, seconds=time.perf_counter() - started)
            outcome = await client.outcome()
            if not outcome.counted:
                raise FslError(f"{client.name} was not counted in round {outcome.number}: {outcome.reason}")


def _say(**told: Any) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


async def _run(folder: str, count: str, rounds: str, together: str, *first: str) -> None:
    members = _Members(Path(folder), int(count), int(together), retrieve=first == ("retrieve",))
    for number in range(1, int(rounds) + 1):
        await members.round(number)


if __name__ == "__main__":
    trio.run(partial(_run, *sys.argv[1:]))
