"""Weighted federated averaging: a linear model, learnt by clients that hold different numbers of examples.

Each client submits its change times its number of examples, and that number. The servers divide the one sum by the
other, and see neither a client's change nor how many examples it has.
"""

import numpy as np

from fsl_async import Dense, Ring, Task
from parties import run_experiment

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


def client(x, y):
    """It retrieves the whole model; it submits its change times its number of examples, and that number."""
    count = len(y)
    return {"model": ...}, lambda found, turn: {"model": trained(found["model"], x, y) * count, "examples": [count]}


def distance(model):
    """Of the model from the truth."""
    return {"distance": float(np.abs(model["model"] - TRUTH).max())}


def main() -> None:
    """Ten rounds, and the same without any protocol."""
    rng = np.random.default_rng(1)
    clients = {name: client(x := rng.normal(size=(count, 4)), x @ TRUTH) for name, count in SIZES.items()}
    secure, clear = (
        run_experiment(TASK, {"model": np.zeros(4)}, clients, rounds=10, evaluate=distance, clear=clear)
        for clear in (False, True)
    )
    for far in secure.curve("distance"):
        print(f"distance from the truth: {far:.6f}")
    assert secure.model["model"].tobytes() == clear.model["model"].tobytes()


if __name__ == "__main__":
    main()
