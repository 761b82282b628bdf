"""Rounds of the deep interest network, between parties in memory: bytes of a client, processor seconds of all parties.

A client has 301 goods and 117 categories, the rows of one table of 197,372 times 18 weights, and 64,327 weights that
every client changes. It retrieves its rows, downloads the others, and submits changes of both.

Source: paper §"Comparing with Existing Scheme"; Niu et al. 2020 for the network.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack

import numpy as np
import trio

from examples.paper.cells import Run, Values
from fsl_async import Dense, FslError, Ring, Sparse, Task
from parties import Client, Network, simulate

SEED = 1
STEP = 2.0**-20
"""Changes are multiples of it, which fixed point holds exactly."""


def rounds(run: Run) -> Values:
    """Rounds of a few clients; the first warms compilers and caches, and is not measured.

    Parameters: `rows`, `width`, `select`, `dense`, `bits`, `fraction_bits`, `clients`, `rounds`.

    Raises:
        FslError: a sum is wrong.
    """
    return trio.run(_rounds, run, strict_exception_groups=True)


def adapter(run: Run) -> Values:
    """The same sizes learnt through PyTorch's adapter, training left out: a measured round for each seed.

    Parameters: `clients`, `seeds` (a list).

    Raises:
        FslError: a sum is wrong.
    """
    from examples.paper.adapter_cost import measure  # which needs torch

    clients, seeds = run.parameters["clients"], run.parameters["seeds"]
    figures = []
    for number, seed in enumerate(seeds, 1):
        figures.append(trio.run(measure, clients, seed))
        run.progress(number / len(seeds), f"seed {seed}")
    if not all(each["exact"] for each in figures):
        raise FslError("a sum differs from the sum in the clear: this must never happen")
    return {
        "seconds": [each["processor_seconds"] for each in figures],
        "seconds_of_the_adapter": [each["of_the_adapter"] for each in figures],
        "bytes_up": max(each["bytes_up"] for each in figures),
        "rounding": max(each["rounding"] for each in figures),
    }


async def _rounds(run: Run) -> Values:
    given = run.parameters
    task = Task(
        name="din",
        blocks=(
            Sparse("items", rows=given["rows"], width=given["width"], select=given["select"]),
            Dense("other", size=given["dense"]),
        ),
        ring=Ring(given["bits"], fraction_bits=given["fraction_bits"]),
        min_clients=2,
    )
    generator = np.random.default_rng(SEED)
    items = generator.standard_normal((given["rows"], given["width"]), dtype=np.float32)
    model = {"items": items, "other": generator.standard_normal(given["dense"], dtype=np.float32)}
    seconds: list[float] = []
    up: set[int] = set()
    down: set[int] = set()
    async with simulate(task, model, SEED) as network, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(network.client(f"client-{n}")) for n in range(given["clients"])]
        for number in range(1 + given["rounds"]):
            started = time.process_time()
            moved = await _round(network, clients, generator)
            spent = (time.process_time() - started) / len(clients)
            if number:
                seconds.append(spent)
                up.update(sent for sent, _ in moved)
                down.update(received for _, received in moved)
            run.progress((number + 1) / (1 + given["rounds"]), f"round {number + 1}")
    return {"seconds": seconds, "bytes_up": max(up), "bytes_down": max(down)}


async def _round(network: Network, clients: list[Client], generator: np.random.Generator) -> list[tuple[int, int]]:
    """One round of all clients, and what each of them sent and received."""
    items = network.task.sparse(0)
    total = np.zeros((items.rows, items.width))
    moved = []
    for client in clients:
        sent, received = client.bytes_sent, client.bytes_received
        rows = generator.choice(items.rows, items.select, replace=False)
        delta = generator.integers(-1000, 1000, (items.select, items.width)) * STEP
        await client.retrieve({"items": rows})
        await client.retrieve({"other": ...})
        await client.submit({"items": (rows, delta), "other": np.full(network.task.blocks[1].weights, STEP)})
        total[rows] += delta
        moved.append((client.bytes_sent - sent, client.bytes_received - received))
    outcome = await network.finish_round()
    if not np.array_equal(outcome.update["items"], total):
        raise FslError("the round's sum differs from the sum in the clear: this must never happen")
    return moved
