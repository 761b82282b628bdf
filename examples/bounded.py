"""Every client proves that its whole update is within a bound, and the servers count nobody who does not.

Honest clients clip their updates. A client that wants to outvote all others is stopped by its own library; if it had
changed that library, the servers would find no proof in its submission and leave it out, without learning its update.
"""

import numpy as np
import trio

from fsl_async import BoundExceededError, Dense, Ring, Sparse, Task
from fsl_async.learning import clipped
from parties import simulate

BOUND = 1.0
TASK = Task(
    name="bounded",
    blocks=[Sparse("items", rows=10_000, width=8, select=50), Dense("head", size=32)],
    ring=Ring(64, fraction_bits=16),
    updates="any",
    min_clients=2,
    max_clients=100,
    bound=BOUND,  # the L2 norm of all blocks together
)


async def main() -> None:
    """Three clients, one of which wants too much."""
    rng = np.random.default_rng(1)
    async with simulate(TASK, {"items": np.zeros((10_000, 8)), "head": np.zeros(32)}, seed=7) as net:
        for name, size in (("alice", 0.01), ("bob", 0.1), ("mallory", 100.0)):
            update = {
                "items": (rng.choice(10_000, 40, replace=False), size * rng.normal(size=(40, 8))),
                "head": size * rng.normal(size=32),
            }
            async with net.client(name) as client:
                try:
                    await client.submit(update)
                except BoundExceededError as error:
                    print(f"{name}: norm {error.norm:.3g}, most of it in {error.heaviest!r}; clipped to {BOUND:g}")
                    await client.submit(clipped(update, BOUND))
        outcome = await net.finish_round()
    total = sum(float(np.square(values).sum()) for values in outcome.update.values()) ** 0.5
    print(f"counted: {', '.join(outcome.clients)}; the norm of the sum is {total:.3f}")
    assert total <= 3 * BOUND


if __name__ == "__main__":
    trio.run(main)
