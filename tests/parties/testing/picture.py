"""Draws the chart of docs/testing.md, and prints it as text: `python -m tests.parties.testing.picture docs/images`."""

import logging
import sys
from pathlib import Path

import numpy as np
import trio
from trio.testing import MockClock

from fsl_async import Ring, Sparse, Task
from parties import Client, Schedule
from parties.testing import AtTransition, Chart, Crash, Cut
from parties.testing.world import world

SEED = 3
TASK = Task(
    name="words",
    blocks=[Sparse("words", rows=1_000, select=10)],
    ring=Ring(64, fraction_bits=16),
    min_clients=2,
    max_clients=10,
)
FAULTS = [
    Cut("bob", connection=1, outward=True, after=60, lost=True),
    Crash("S1", AtTransition("ssa", "Proved", "PeerProofs", "Verified", "after write"), down=1.5),
]


async def take_part(client: Client) -> None:
    """One submission."""
    await client.submit({"words": ([1, 2, 3], np.ones((3, 1)))})


async def chart() -> Chart:
    """The end of a round of three clients in which S1 crashes before it has committed to its sum."""
    names = ("ada", "bob", "cleo")
    schedule = Schedule(clients=3, rounds=1)
    async with world(TASK, {"words": np.zeros((1_000, 1))}, SEED, FAULTS, schedule, clients=names) as made:
        await made.wait_listening()
        for name in names:
            made.start(name, take_part)
        await made.wait_settled(1)
        return Chart.of(made).last(54)


if __name__ == "__main__":
    logging.disable()
    drawn = trio.run(chart, clock=MockClock(autojump_threshold=0))
    title = "The end of a round in which S1 crashes"
    (Path(sys.argv[1]) / "sequence-chart.svg").write_text(drawn.svg(title), encoding="utf-8")
    print(drawn)
