"""Private set union alone: which rows did anybody select? Who selected which, and how many did, stays hidden.

The servers and the clients learn the union, and nothing else; such a task has no model, and nothing is retrieved or
summed. In `union.py` a round of this kind comes before each round of retrievals and updates, to make that one smaller.
"""

import numpy as np
import trio

from fsl_async import Sparse, Task
from parties import simulate

ROWS, SELECT = 50_000, 100
TASK = Task(
    name="seen words",
    protocol="psu",
    blocks=[Sparse("words", rows=ROWS, select=SELECT)],
    min_clients=2,
    max_clients=10,
)


async def main() -> None:
    """Three clients, one after the other, find the union of their rows; each reads it."""
    rng = np.random.default_rng(1)
    seen = {name: rng.choice(1_000, SELECT, replace=False) for name in ("ada", "bob", "cyd")}
    async with (
        simulate(TASK, {}, seed=1) as net,
        net.client("ada") as ada,
        net.client("bob") as bob,
        net.client("cyd") as cyd,
    ):
        for client in (ada, bob, cyd):
            await client.unite({"words": seen[client.name]})
        await net.finish_round()
        for client in (ada, bob, cyd):
            outcome = await client.outcome()
            union = (await client.union())["words"]
            assert np.array_equal(union, np.unique(np.concatenate(list(seen.values()))))
            print(f"{client.name}: round {outcome.number} found {len(union)} of {ROWS:,} words")
        print(f"it took {ada.bytes_sent:,} bytes from ada, and {ada.bytes_received:,} to her")


if __name__ == "__main__":
    trio.run(main)
