"""One client's part in the demo, in memory or in its own process, and its measurements."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsl_async.ring import Ring
from fsl_async.task import Task
from parties.client.client import Client
from parties.commands.demo.learner import BLOCKS, Learner, Model
from parties.outcome import Retrieved

RING = Ring(64, fraction_bits=24)
PHASES = ("retrieve", "train", "submit", "aggregate")


def demo_task(clients: int) -> Task:
    """The demo's task for a number of clients."""
    return Task(name="manual", blocks=BLOCKS, ring=RING, min_clients=2, max_clients=clients)


@dataclass
class Summary:
    """The measurements of a run of the demo.

    Attributes:
        model: the final model.
        seconds: by phase, the sum over all rounds; for a client's phases, of one client.
        sent: bytes that one client sent in all rounds, with handshakes.
        received: bytes that one client received in all rounds, with handshakes.
        doubts: explanations of implausible weights that clients retrieved.
    """

    model: Model
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    sent: int = 0
    received: int = 0
    doubts: list[str] = field(default_factory=list)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        started = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - started


async def take_part(client: Client, learner: Learner, round_number: int, summary: Summary) -> None:
    """One client's part in one round: retrieve the rows of its words, learn from its text, submit the deltas.

    A client that retrieves implausible weights does not learn from them, and one whose training fails has learnt
    nothing. It submits zeros, because a server that falsifies some rows must not learn from a missing submission who
    uses them.
    """
    async with client.taking_part():
        with summary.timed("retrieve"):
            found = await client.retrieve(wanted(learner, round_number))
        with summary.timed("train"):
            update = learnt(learner, round_number, found)
        if update is None:
            summary.doubts.append(f"{client.name} retrieved implausible weights in its round {round_number + 1}")
            return
        with summary.timed("submit"):
            await client.submit(update)


def wanted(learner: Learner, round_number: int) -> dict[str, Any]:
    """What a client retrieves: the rows of its words, and all priors."""
    words, priors = BLOCKS
    return {words.name: learner.wanted_rows(round_number), priors.name: ...}


def learnt(learner: Learner, round_number: int, found: Retrieved) -> dict[str, Any] | None:
    """The update that a client makes of what it has retrieved; None where that is not plausible."""
    words, priors = BLOCKS
    if not learner.plausible(round_number, found[words.name], found[priors.name]):
        return None
    rows = learner.wanted_rows(round_number)
    kept = ~np.isin(rows, found.deferred.get(words.name, []))
    deltas, prior_deltas = learner.train(round_number, rows[kept], found[words.name][kept], found[priors.name])
    return {words.name: (rows[kept], deltas), priors.name: prior_deltas}
