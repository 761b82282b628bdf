"""The same weights twice: as rows of one weight, and as rows of sixteen that move as one element.

A tree hides a position, and costs the same however much is at its leaf. Sixteen weights under one leaf need one tree.
"""

import numpy as np
import trio

from fsl_async import Ring, Sparse, Task
from parties import simulate

WEIGHTS, USED, TOGETHER = 32_768, 512, 16


def task_of(width: int) -> Task:
    """A block of all weights, `width` to a row; a client uses equally many weights in either form."""
    block = Sparse("embedding", rows=WEIGHTS // width, width=width, select=USED // width)
    return Task(name="words", blocks=[block], ring=Ring(64, fraction_bits=24), min_clients=2, max_clients=10)


async def main() -> None:
    """One round in each form."""
    rng = np.random.default_rng(1)
    weights, changes = rng.normal(size=WEIGHTS).astype(np.float32), rng.integers(-99, 99, USED) / 64
    words = rng.choice(WEIGHTS // TOGETHER, USED // TOGETHER, replace=False)
    sums = []
    for width in (1, TOGETHER):
        ids = (words[:, None] * (TOGETHER // width) + np.arange(TOGETHER // width)).reshape(-1)
        async with simulate(task_of(width), {"embedding": weights.reshape(-1, width)}, seed=1) as net:
            for name in ("ada", "bob"):
                async with net.client(name) as client, client.taking_part():
                    await client.retrieve({"embedding": ids})
                    await client.submit({"embedding": (ids, changes.reshape(-1, width))})
                    sent, received = client.bytes_sent, client.bytes_received
            sums.append((await net.finish_round()).update["embedding"].reshape(-1))
        print(f"rows of {width:2}: {len(ids):3} of them, {sent:7,} bytes up, {received:6,} down")
    assert np.array_equal(*sums)


if __name__ == "__main__":
    trio.run(main)
