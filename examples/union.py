"""Find the union of all clients' rows first, then work on those rows alone: trees and sums become smaller.

Servers and clients learn the union, so a task has to ask for it: `alignment="union"`. Which client selected which rows
stays hidden.
"""

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import simulate

ROWS, WIDTH, SELECT = 50_000, 8, 100
ITEMS = Sparse("items", rows=ROWS, width=WIDTH, select=SELECT)
TASK = Task(
    name="shop", blocks=[ITEMS], ring=Ring(64, fraction_bits=24), alignment="union", min_clients=2, max_clients=10
)


async def main() -> None:
    """A union round, and a round on the union."""
    rng = np.random.default_rng(1)
    popular, model = rng.choice(ROWS, 300, replace=False), {"items": np.zeros((ROWS, WIDTH))}
    baskets = {name: rng.choice(popular, SELECT, replace=False) for name in ("ada", "bob")}
    async with simulate(TASK, model, seed=1) as net, net.client("ada") as ada, net.client("bob") as bob:
        for client in (ada, bob):
            await client.unite({"items": baskets[client.name]})
        union = (await net.finish_union())["items"]
        sent = ada.bytes_sent
        print(f"the union has {len(union)} of {ROWS:,} rows; finding it took {sent:,} bytes from ada")
        for client in (ada, bob):
            async with client.taking_part():
                await client.retrieve({"items": baskets[client.name]})
                await client.submit({"items": (baskets[client.name], np.ones((SELECT, WIDTH)))})
        outcome = await net.finish_round()
    share = [note.bulk for note in net.transcript if type(note.message).__name__ == "Share"][-1]
    print(f"the round took {ada.bytes_sent - sent:,} from ada; a server's share has {share:,}")
    print(f"where {ROWS * WIDTH * 8:,} would be all rows")
    assert np.array_equal(np.flatnonzero(outcome.update["items"].any(axis=1)), union)


if __name__ == "__main__":
    trio.run(main)
