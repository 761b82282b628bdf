"""U-DPF epochs as sessions: clients whose rows stay the same upload trees once, and one hint per bin in later rounds.

A hint carries the new values and no position; the servers keep the trees, which hide the positions as before. The
primitive itself, without parties, is in updatable_dpf.py.
"""

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import simulate

ROWS, SELECT = 20_000, 64
TASK = Task(
    name="reading lists",
    blocks=[Sparse("books", rows=ROWS, width=4, select=SELECT)],
    ring=Ring(64, fraction_bits=24),
    selection="fixed",
    min_clients=2,
    max_clients=10,
)


async def main() -> None:
    """Three rounds of two clients."""
    rng = np.random.default_rng(1)
    model = {"books": rng.normal(size=(ROWS, 4)).astype(np.float32)}
    shelves = {name: rng.choice(ROWS, SELECT, replace=False) for name in ("ada", "bob")}
    async with simulate(TASK, model, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        for _ in range(3):
            sent = ada.bytes_sent
            for client in (ada, bob):
                rows = shelves[client.name]
                async with client.taking_part():
                    found = await client.retrieve({"books": rows})
                    assert np.array_equal(found["books"], net.model["books"][rows])
                    await client.submit({"books": (rows, -found["books"] / 4)})
            outcome = await net.finish_round()
            print(f"round {outcome.number}: {outcome.clients}, {ada.bytes_sent - sent:,} bytes from ada")
        # Other rows need other trees. The servers see that the rows have changed, so the program has to ask for it.
        ada.forget_session()


if __name__ == "__main__":
    trio.run(main)
