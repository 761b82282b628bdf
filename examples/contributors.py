"""Only rows with enough contributors are opened: a sum over a lone client's row would show that client's update.

Every client contributes to the popular rows, and to one that nobody else has. The servers count, without seeing whom,
how many clients stand behind each row, and open the rows with at least five: one client that lies counts three times at
most, so with one honest client it opens nothing. The others' values leave no client.
"""

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import simulate

ROWS, POPULAR = 20_000, np.arange(10)
TASK = Task(
    name="counts",
    blocks=[Sparse("clicks", rows=ROWS, select=20)],
    ring=Ring(64),  # whole numbers
    updates="any",
    min_clients=3,
    min_contributors=5,
    max_clients=100,
)


async def main() -> None:
    """Five clients share ten rows; each has one row of its own."""
    async with simulate(TASK, {"clicks": np.zeros((ROWS, 1), dtype=np.int64)}, seed=1) as net:
        for number in range(5):
            async with net.client(f"client-{number}") as client:
                rows = np.append(POPULAR, 1000 + number)
                await client.submit({"clicks": (rows, np.ones((len(rows), 1), dtype=np.int64))})
                if number < 4:
                    continue
                outcome = await net.finish_round()
                print(f"round {outcome.number}: {len(outcome.opened_rows['clicks'])} of {ROWS:,} rows opened")
                told = await client.outcome()
                again = told.withheld({"clicks": rows})["clicks"]
                print(f"{client.name}: rows {again.tolist()} were withheld, and may be submitted again")
        assert np.array_equal(np.flatnonzero(net.model["clicks"]), POPULAR)


if __name__ == "__main__":
    trio.run(main)
