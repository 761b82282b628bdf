"""Private submodel retrieval alone: clients read rows of a table, and neither server learns which rows.

Nothing is submitted, so no round waits for clients: here the program ends it; a deployed one ends after
`rounds.seconds`. How often a client may retrieve in one round is `retrievals`. The next round has a fresh seed.
"""

import numpy as np
import trio

from fsl_async import MisuseError, Sparse, Task
from parties import simulate

ROWS, SELECT = 20_000, 50
TASK = Task(
    name="dictionary",
    protocol="psr",
    blocks=[Sparse("vectors", rows=ROWS, width=8, select=SELECT)],
    retrievals=2,
    max_clients=10,
)


async def main() -> None:
    """One client reads in two rounds, at most twice in each."""
    rng = np.random.default_rng(1)
    table = {"vectors": rng.normal(size=(ROWS, 8)).astype(np.float32)}
    async with simulate(TASK, table, seed=1) as net, net.client("ada") as ada:
        for _ in range(TASK.retrievals):
            words = rng.choice(ROWS, SELECT, replace=False)
            found = await ada.retrieve({"vectors": words})
            assert np.array_equal(found["vectors"], table["vectors"][words])
        print(f"{TASK.retrievals} × {SELECT} rows: {ada.bytes_sent:,} bytes up, {ada.bytes_received:,} down")
        print(f"where the whole table has {table['vectors'].nbytes:,}")
        try:
            await ada.submit({"vectors": ([3], np.ones((1, 8)))})
        except MisuseError as refusal:
            print(f"refused: {refusal}")
        outcome = await net.finish_round()
        print(f"round {outcome.number} is over")
        await ada.retrieve({"vectors": [3, 14]})


if __name__ == "__main__":
    trio.run(main)
