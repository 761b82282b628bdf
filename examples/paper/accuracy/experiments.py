"""The accuracy experiments: their cells, with all settings.

Rates are chosen on questions for training that are held out, in the cells of the grid; the test set is for results.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from examples.paper.cells import Cell, Run, Values

TORCH_AND_TREC = ("torch", "data/trec")
SEEDS = (1, 2, 3)


def _late(name: str) -> Callable[[Run], Values]:
    """A function of `computing`, which needs torch, imported when it is called."""

    def compute(run: Run) -> Values:
        computed: Values = getattr(import_module("examples.paper.accuracy.computing"), name)(run)
        return computed

    return compute


BAG = {"width": 50, "batch": 32, "steps": 16, "client_rate": 0.01, "select": 2000}
BAG_OF_FOUR: dict[str, Any] = BAG | {"clients": 4, "per_round": 4, "rounds": 60, "every": 10, "held_out": 0, "secure": True}
BAG_OF_HUNDRED: dict[str, Any] = {
    "width": 50, "clients": 100, "per_round": 10, "rounds": 40, "every": 10, "batch": 8, "steps": 14, "select": 400
}  # fmt: skip

BAG_CELLS = tuple(
    Cell(
        f"trec-bag-seed{seed}", _late("bag"), BAG_OF_FOUR | {"rule": {"type": "none"}, "seed": seed},
        needs=TORCH_AND_TREC, smaller="60 rounds of the paper's 500", seconds=80,
    )
    for seed in SEEDS
)  # fmt: skip

GRIDS: dict[str, list[dict[str, Any]]] = {
    "fedavg": [{"type": "sgd", "rate": rate} for rate in (1.0, 2.0, 4.0)],
    "fedavgm": [{"type": "momentum", "rate": rate, "momentum": 0.9} for rate in (0.1, 0.3, 1.0)],
    "fedadam": [{"type": "adam", "rate": rate, "epsilon": 1e-3} for rate in (0.01, 0.03, 0.1)],
}
CLIENT_RATES = (0.003, 0.01, 0.03, 0.1)

GRID_CELLS = tuple(
    Cell(
        f"trec-grid-{rule}", _late("bag_grid"),
        BAG_OF_HUNDRED | {"rules": rules, "client_rates": CLIENT_RATES, "seed": 1, "held_out": 500},
        needs=TORCH_AND_TREC, seconds=60,
    )
    for rule, rules in GRIDS.items()
)  # fmt: skip
