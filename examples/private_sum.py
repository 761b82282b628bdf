"""A sum with noise that nobody knows: what many clients agree on comes out, what one client has does not.

Each server adds noise to its share before it commits to it. Rows that are no more than noise stay as they are. Every
round spends some of the privacy budget, and the round that would exceed it is never opened.
"""

import numpy as np
import trio

from fsl_async import Privacy, Ring, Sparse, Task
from parties import simulate

ROWS, CLIENTS = 2_000, 60
POPULAR = [7, 11]
TASK = Task(
    name="private",
    blocks=[Sparse("items", rows=ROWS, select=3)],
    ring=Ring(64, fraction_bits=16),
    updates="any",
    min_clients=2,
    max_clients=100,
    bound=1.0,  # no client's update has a larger norm
    privacy=Privacy(noise=1.8, delta=1e-6, budget=4.0),
)


async def main() -> None:
    """Two rounds of sixty clients, which share two rows; each has another row of its own."""
    privacy = TASK.privacy
    assert privacy is not None
    print(f"the budget of ε = {privacy.budget:g} lasts for {privacy.rounds} rounds")
    async with simulate(TASK, {"items": np.zeros(ROWS)}, seed=1) as net:
        for _ in range(privacy.rounds):
            for number in range(CLIENTS):
                async with net.client(f"client-{number}") as client:
                    rows = np.append(POPULAR, 100 + number)
                    await client.submit({"items": (rows, np.full((3, 1), 0.57))})
            outcome = await net.finish_round()
            kept = np.flatnonzero(outcome.update["items"])
            print(f"round {outcome.number}: {len(kept)} of {ROWS:,} rows are more than noise, {POPULAR} among them")
            for row in POPULAR:
                print(f"  row {row}: {outcome.update['items'][row, 0]:.1f}, without noise {CLIENTS * 0.57:.1f}")
            assert set(POPULAR) <= set(kept)
        for server in net.servers:
            (spent,) = server.status().notes
            print(f"{server.setup.name}: {spent.title}: {spent.text}; {server.state_name()}")


if __name__ == "__main__":
    trio.run(main)
