"""Let only some clients take part in a round, drawn at random of those that ask: `sample=` of a task.

Both servers draw the same clients, by their common toss, and tell each client before it computes anything. Whoever is
not drawn asks again for the next round; with `wait=True` a call does that by itself, until its client is drawn.
"""

from collections import Counter

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import NotDrawnError, simulate

ITEMS = Sparse("items", rows=1_000, select=5)
TASK = Task(name="shop", blocks=[ITEMS], ring=Ring(64, fraction_bits=24), min_clients=2, max_clients=10, sample=0.25)
NAMES = [f"client {number}" for number in range(12)]
ROUNDS = 4


async def main() -> None:
    """Four rounds, each with a quarter of twelve clients."""
    counted: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    async with simulate(TASK, {"items": np.zeros(1_000)}, seed=1) as net, trio.open_nursery() as nursery:

        async def take_part(name: str) -> None:
            async with net.client(name) as client:
                while True:
                    try:
                        async with client.taking_part():
                            rows = await client.retrieve({"items": [3, 14]})
                            await client.submit({"items": ([3, 14], rows["items"] * 0 + 1)})
                    except NotDrawnError:
                        missed[name] += 1
                        continue  # nothing was computed; the next call asks for the next round
                    await client.outcome()

        for name in NAMES:
            nursery.start_soon(take_part, name)
        for _ in range(ROUNDS):
            outcome = await net.finish_round()  # draws, waits for those that were drawn, and closes the round
            counted.update(outcome.clients)
            print(f"round {outcome.number}: {', '.join(outcome.clients)}")
        nursery.cancel_scope.cancel()
    print(f"{len(counted)} of {len(NAMES)} clients took part, {missed.total()} times one was not drawn")
    assert counted.total() == ROUNDS * 3


if __name__ == "__main__":
    trio.run(main)
