"""Weighted federated averaging: a linear model, learnt by clients that hold different numbers of examples.

Each client submits its change times its number of examples, and that number. The servers divide the one sum by the
other, and see neither a client's change nor how many examples it has.
"""

import numpy as np
import trio

from fsl_async import Dense, Ring, Task
from parties import simulate

TASK = Task(
    name="regression",
    blocks=[Dense("model", size=4), Dense("examples", size=1)],
    ring=Ring(64, fraction_bits=24),
    apply="weighted-mean",
    weights="examples",
    min_clients=2,
    max_clients=10,
)
TRUTH = np.array([1.0, -2.0, 0.5, 3.0])
SIZES = {"ada": 5, "bob": 40, "cy": 80}


def trained(model, x, y):
    """What a few steps of gradient descent on one client's examples change."""
    local = model.copy()
    for _ in range(5):
        local -= 0.1 * x.T @ (x @ local - y) / len(y)
    return local - model


def weighted(change, count):
    """The change times the number of examples, to the 24 binary digits that the ring keeps."""
    return np.rint(change * count * 2.0**24) / 2.0**24


async def main() -> None:
    """Ten rounds, and the same without any protocol."""
    rng = np.random.default_rng(1)
    data = {name: (x := rng.normal(size=(count, 4)), x @ TRUTH) for name, count in SIZES.items()}
    clear = np.zeros(4)
    async with simulate(TASK, {"model": np.zeros(4)}, seed=1) as net:
        for _ in range(10):
            for name, (x, y) in data.items():
                async with net.client(name) as client, client.taking_part():
                    model = (await client.retrieve({"model": ...}))["model"]
                    change = weighted(trained(model, x, y), len(y))
                    await client.submit({"model": change, "examples": [len(y)]})
            await net.finish_round()
            clear += sum(weighted(trained(clear, x, y), len(y)) for x, y in data.values()) / sum(SIZES.values())
            assert net.model["model"].tobytes() == clear.tobytes()
            print(f"distance from the truth: {np.abs(net.model['model'] - TRUTH).max():.6f}")


if __name__ == "__main__":
    trio.run(main)
