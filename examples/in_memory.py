"""Two servers and two clients in one process: retrieve rows privately, add updates up privately."""

import numpy as np
import trio

from fsl_async import Dense, Ring, Sparse, Task
from parties import simulate

TASK = Task(
    name="shop",
    blocks=[Sparse("items", rows=10_000, width=8, select=50), Dense("head", size=32)],
    ring=Ring(64, fraction_bits=24),
    min_clients=2,
    max_clients=100,
)


async def main() -> None:
    """One round."""
    rng = np.random.default_rng(1)
    model = {"items": rng.normal(size=(10_000, 8)).astype(np.float32), "head": np.zeros(32)}
    async with simulate(TASK, model, seed=7) as net:
        for name in ("alice", "bob"):
            ids = rng.choice(10_000, 40, replace=False)
            async with net.client(name) as client, client.taking_part():
                found = await client.retrieve({"items": ids, "head": ...})
                assert np.array_equal(found["items"], model["items"][ids])
                await client.submit({"items": (ids, 0.5 * found["items"]), "head": np.ones(32)})
                print(f"{name}: {client.bytes_sent:,} bytes sent, {client.bytes_received:,} received")
        outcome = await net.finish_round()
    print(f"counted: {', '.join(outcome.clients)}; the sum of head begins {outcome.update['head'][:3]}")


if __name__ == "__main__":
    trio.run(main)
