"""Some of a crowd's clients as one process.

    python -m tests.system.soak.crowd_process FOLDER FIRST LAST SEED [--rounds N] [--over SECONDS]

Every client is a task of its own with connections of its own. The submissions are made first: each client enters the
round and plants its trees, and its bytes wait at a gate until all clients of all processes are ready; the parent opens
the gate (SIGUSR1). What is told then is measured from the gate on. Every round has a gate of its own.
"""

import argparse
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import trio

from fsl_async import Dense
from fsl_async.task import Task
from fsl_async.wire.codec import decode
from fsl_async.wire.messages import FromClient, Hint, Submit
from parties.client.client import Client
from parties.compute import ThreadLane
from transport import Channel, TcpTransport

from .site import UNIT, Site, client_setup, say

SPREAD = 2**12
"""Update values are whole numbers of units below this."""

PATIENCE = 900.0
"""Seconds: thousands that come at once wait for each other, longer than a client's ordinary patience."""

PREPARING = 64
"""So many clients of a process connect and plant at a time, before the gate; more would only wait for each other."""


def name_of(number: int) -> str:
    """What a client of the crowd is called."""
    return f"client-{number:04}"


def update_of(task: Task, seed: int, number: int, round_number: int = 1) -> dict[str, Any]:
    """What a client submits, in units: by sparse block rows and whole numbers, by dense block whole numbers."""
    rng = np.random.default_rng((seed, round_number, number))
    update: dict[str, Any] = {}
    for block in task.blocks:
        if isinstance(block, Dense):
            update[block.name] = rng.integers(-SPREAD, SPREAD, size=block.size)
        else:
            rows = rng.choice(block.rows, block.select, replace=False).astype(np.uint32)
            update[block.name] = (rows, rng.integers(-SPREAD, SPREAD, size=(block.select, block.width)))
    return update


def in_weights(update: dict[str, Any]) -> dict[str, Any]:
    """The same update as a client is given it: in floats."""
    return {
        name: (values[0], values[1] * UNIT) if isinstance(values, tuple) else values * UNIT
        for name, values in update.items()
    }


class Gate:
    """Where the submissions of one round wait for each other.

    Args:
        expected: how many there are.
        arrived: called once for each that waits.

    Attributes:
        ready: set once all wait.
        opened_at: when it was opened, by the monotonic clock.
    """

    def __init__(self, expected: int, arrived: Callable[[], None]) -> None:
        self.ready = trio.Event()
        self.opened_at = 0.0
        self._expected = expected
        self._arrived = arrived
        self._waiting: set[str] = set()
        self._opened = trio.Event()

    def open(self) -> None:
        """Let everybody pass."""
        self.opened_at = time.monotonic()
        self._opened.set()

    async def pass_through(self, client: str) -> None:
        """Wait until it opens."""
        if client not in self._waiting:
            self._waiting.add(client)
            self._arrived()
        if len(self._waiting) == self._expected:
            self.ready.set()
        await self._opened.wait()


@dataclass
class Walker:
    """A client on its way through the gates.

    Attributes:
        name: its name.
        gate: the one at which its submission waits.
        later: so many seconds after the others it goes on, once the gate is open.
    """

    name: str
    gate: Gate
    later: float = 0.0

    async def pass_through(self) -> None:
        """Wait until it may go on."""
        await self.gate.pass_through(self.name)
        await trio.sleep_until(trio.current_time() + max(0.0, self.gate.opened_at + self.later - time.monotonic()))


class GatedTransport(TcpTransport):
    """TCP whose submissions wait at a gate."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker

    async def dial(self, *arguments: Any) -> Channel:
        return GatedChannel(await super().dial(*arguments), self._walker)


class GatedChannel(Channel):
    """A channel, whose state it shares, that holds a submission back until the gate is open."""

    def __init__(self, inner: Channel, walker: Walker) -> None:
        self.__dict__ = vars(inner)
        self._walker = walker

    async def send(self, *parts: Any, **more: Any) -> None:
        message = decode(parts[0], FromClient, "ourselves").message  # bulk comes in parts of its own
        if isinstance(message, Submit | Hint):
            await self._walker.pass_through()
        await super().send(*parts, **more)


async def crowd(site: Site, first: int, last: int, rounds: int, seed: int, over: float) -> None:
    """Live through some rounds with all of these clients, and tell what they took."""
    turns = trio.Semaphore(PREPARING)
    gates = [Gate(last - first, turns.release if number == 0 else _nothing) for number in range(rounds)]
    lane = ThreadLane(1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_wait_for_parent, gates, last - first)
        async with trio.open_nursery() as clients:
            for number in range(first, last):
                walker = Walker(name_of(number), gates[0], over * (number - first) / (last - first))
                more = {"transport": GatedTransport(walker), "lane": lane, "patience": PATIENCE}
                setup = client_setup(site, walker.name, **more)
                await turns.acquire()
                clients.start_soon(_take_part, Client(setup), walker, gates, seed, number)
        nursery.cancel_scope.cancel()


def _nothing() -> None:
    """Nobody waits for a turn in later rounds: all are connected."""


async def _take_part(client: Client, walker: Walker, gates: Sequence[Gate], seed: int, number: int) -> None:
    async with client:
        for round_number, gate in enumerate(gates, start=1):
            walker.gate = gate
            receipt = await client.submit(in_weights(update_of(client.task, seed, number, round_number)))
            seconds = time.monotonic() - gate.opened_at - walker.later
            say(submitted=client.name, round=receipt.number, seconds=seconds, bytes_sent=receipt.bytes_sent)
            outcome = await client.outcome()
            say(told=client.name, round=outcome.number, counted=outcome.counted, reason=outcome.reason)


async def _wait_for_parent(gates: Sequence[Gate], clients: int) -> None:
    with trio.open_signal_receiver(signal.SIGUSR1) as signals:
        for round_number, gate in enumerate(gates, start=1):
            await gate.ready.wait()
            say(ready=clients, round=round_number)
            await anext(signals)
            gate.open()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for word in ("first", "last", "seed"):
        parser.add_argument(word, type=int)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--over", type=float, default=0.0, help="seconds over which submissions are let go")
    options = parser.parse_args()
    numbers = options.first, options.last, options.rounds, options.seed
    trio.run(crowd, Site(options.folder), *numbers, options.over)


if __name__ == "__main__":
    main()
