"""Secure submodel aggregation alone: every client adds to a few rows, and the servers learn the sum over all clients.

Neither server learns which rows a client touches, nor what it adds. Clients need not retrieve first: `updates="any"`
gives each submission trees of its own, so that any rows may be updated.
"""

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import simulate

ROWS, SELECT = 20_000, 20
TASK = Task(
    name="counts",
    blocks=[Sparse("clicks", rows=ROWS, select=SELECT)],
    ring=Ring(64),  # whole numbers
    updates="any",
    min_clients=3,
    max_clients=100,
)


async def main() -> None:
    """Five clients count what they clicked on."""
    rng = np.random.default_rng(1)
    plain = np.zeros((ROWS, 1), dtype=np.int64)
    async with simulate(TASK, {"clicks": np.zeros((ROWS, 1), dtype=np.int64)}, seed=1) as net:
        for number in range(5):
            async with net.client(f"client-{number}") as client:
                rows, counts = rng.choice(100, SELECT, replace=False), rng.integers(1, 9, size=(SELECT, 1))
                receipt = await client.submit({"clicks": (rows, counts)})
                plain[rows] += counts
                print(f"{client.name}: {receipt.bytes_sent:,} bytes")
        outcome = await net.finish_round()
        assert np.array_equal(outcome.update["clicks"], plain)
        assert np.array_equal(net.model["clicks"], plain)
        print(f"round {outcome.number}: the sum of {len(outcome.clients)} clients, exact, over {ROWS:,} rows")


if __name__ == "__main__":
    trio.run(main)
