"""The accuracy experiments: their cells, with all settings.

Rates are chosen on questions for training that are held out, in the cells of the grids; the test set is for results.
Nothing here needs torch before a cell is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from examples.paper.accuracy import sections
from examples.paper.cells import Cell, Experiment, Run, Values

SEEDS = (1, 2, 3)
TREC, MNIST, CIFAR10 = ("torch", "data/trec"), ("torch", "data/mnist"), ("torch", "data/cifar10")


def _late(name: str, module: str = "computing") -> Callable[[Run], Values]:
    """A function of a module, which may need torch, imported when it is called."""

    def compute(run: Run) -> Values:
        computed: Values = getattr(import_module(f"examples.paper.accuracy.{module}"), name)(run)
        return computed

    return compute


def _top(weights: int, percent: float, row: int = 1) -> dict[str, Any]:
    """Of all weights, in rows of so many, the percentage that moved most; at 100 the whole model."""
    if percent == 100:
        return {"sparse": "none"}
    return {"sparse": "all", "percent": percent, "row": row, "select": round(weights * percent / 100 / row)}


# A bag of words: 4 clients with the plain mean, and 100 clients with each rule of servers.

_BAG: dict[str, Any] = {"width": 50, "spread": 0.05, "seed": 1, "held_out": 0, "every": 10, "secure": True}
# The epsilon of Adam, or a client that has learnt its questions takes whole steps by gradients of nearly nothing.
_FOUR = _BAG | {
    "clients": 4, "per_round": 4, "rounds": 60, "batch": 32, "steps": 16, "select": 2000, "client_rate": 0.01,
    "client_epsilon": 0.0001,
    "rule": {"type": "none"},
}  # fmt: skip
_HUNDRED = _BAG | {"clients": 100, "per_round": 10, "rounds": 40, "batch": 8, "steps": 14, "select": 400}

BAG = tuple(
    Cell(f"trec-bag-{seed}", _late("bag"), _FOUR | {"seed": seed}, needs=TREC, smaller="60 rounds, not 500", seconds=60)
    for seed in SEEDS
)

_GRIDS: dict[str, list[dict[str, Any]]] = {
    "fedavg": [{"type": "sgd", "rate": rate} for rate in (1.0, 2.0, 4.0)],
    "fedavgm": [{"type": "momentum", "rate": rate, "momentum": 0.9} for rate in (0.1, 0.3, 1.0)],
    "fedadam": [{"type": "adam", "rate": rate, "epsilon": 0.001} for rate in (0.01, 0.03, 0.1)],
}

GRIDS = tuple(
    Cell(
        f"trec-grid-{rule}", _late("bag_grid"),
        _HUNDRED | {"rules": rules, "client_rates": [0.003, 0.01, 0.03, 0.1], "held_out": 500, "secure": False},
        needs=TREC, seconds=45,
    )
    for rule, rules in _GRIDS.items()
)  # fmt: skip

CHOSEN: dict[str, dict[str, Any]] = {
    "fedavg": {"client_rate": 0.1, "rule": {"type": "sgd", "rate": 1.0}},
    "fedavgm": {"client_rate": 0.01, "rule": {"type": "momentum", "rate": 1.0, "momentum": 0.9}},
    "fedadam": {"client_rate": 0.003, "rule": {"type": "adam", "rate": 0.1, "epsilon": 0.001}},
}
"""By rule, the best settings of its grid; of equal ones, the first."""

HUNDRED = tuple(
    Cell(f"trec-100-{rule}-{seed}", _late("bag"), _HUNDRED | chosen | {"seed": seed}, needs=TREC, seconds=40)
    for rule, chosen in CHOSEN.items()
    for seed in SEEDS
)

# Kim's CNN: rows of the words' table as mega-elements, and top-k of all weights.

_CNN: dict[str, Any] = {
    "clients": 4, "rounds": 40, "every": 10, "seed": 1, "held_out": 0, "width": 128, "spread": 0.5,
    "windows": [1, 2, 3], "filters": 64, "dropout": 0.5, "batch": 64, "epochs": 2, "client_rate": 0.003,
}  # fmt: skip
_CNN_SMALLER = (
    "40 rounds, not 500, and a smaller CNN (windows of 1, 2 and 3 words with 64 filters each, vectors of 128, the "
    "first 20 words of a question), for its seconds; Adam at 0.003, not 0.001, for fewer rounds"
)

MEGA = tuple(
    Cell(
        f"trec-mega-{percent}-{seed}", _late("cnn"),
        _CNN | {"seed": seed, "sparse": "words", "percent": percent, "secure": True},
        needs=TREC, smaller=_CNN_SMALLER, seconds=190,
    )
    for seed in SEEDS[:2]
    for percent in (0.0125, 0.1, 1, 10)
)  # fmt: skip

_RATES = (5, 10, 20, 40, 60, 80, 100)

TOP_TREC = tuple(
    Cell(
        f"trec-top-{percent}", _late("cnn"), _CNN | _top(1_159_878, percent) | {"secure": False},
        needs=TREC, smaller=_CNN_SMALLER + "; one seed", seconds=120,
    )
    for percent in _RATES
)  # fmt: skip

# CNNs on images.

_IMAGES: dict[str, Any] = {
    "clients": 100, "per_round": 10, "rounds": 200, "every": 20, "seed": 1, "batch": 10, "steps": 20,
    "client_rate": 0.1, "secure": False,
}  # fmt: skip
_MNIST = _IMAGES | {"data": "mnist", "layers": [8, 16, 64]}
_MNIST_SMALLER = "200 rounds, not 6,000; a CNN of 54,314 weights, not 1,663,370; batches of 10 at 0.1; one seed"

TOP_MNIST = tuple(
    Cell(
        f"mnist-top-{percent}", _late("pictures"), _MNIST | _top(54_314, percent),
        needs=MNIST, smaller=_MNIST_SMALLER, seconds=90,
    )
    for percent in _RATES
)  # fmt: skip

MNIST_ROWS = Cell(
    "mnist-rows-of-16", _late("pictures"), _MNIST | _top(54_314, 5, row=16) | {"secure": True},
    needs=MNIST, smaller=_MNIST_SMALLER, seconds=200,
)  # fmt: skip

MNIST_WHOLE = Cell(
    "mnist-cnn-1663370", _late("pictures"),
    _MNIST | _top(1_663_370, 5, row=16)
    | {"layers": [32, 64, 512], "rounds": 50, "every": 10, "steps": 10, "secure": True},
    needs=MNIST, smaller="50 rounds, not 6,000; ten local steps on batches of 10; rows of 16; one seed", seconds=350,
)  # fmt: skip

TOP_CIFAR10 = tuple(
    Cell(
        f"cifar10-top-{percent}", _late("pictures"),
        _IMAGES | _top(2_156_490, percent, row=16)
        | {"data": "cifar10", "layers": [32, 64, 512], "secure": percent == 5},
        needs=CIFAR10, smaller="200 rounds, not 5,000; batches of 10 at 0.1; rows of 16; one seed", seconds=2000,
    )
    for percent in (5, 100)
)  # fmt: skip

# A bound and noise: simulated clients, the library's mathematics.

NOISED = tuple(
    Cell(
        f"trec-noised-{rounds}-{seed}", _late("noised_words", "private"),
        {
            "clients": 10_000, "questions": 1, "rounds": rounds, "steps": 1, "client_rate": 1.0, "server_rate": 1.0,
            "server_epsilon": 0.0001, "bound": 1.0, "fraction_bits": 16, "noise": noise, "delta": 1e-6, "budget": 8.0,
            "held_out": 0, "seed": seed,
        },
        needs=("data/trec",), seconds=5,
    )
    for rounds, noise in ((5, 1.543), (10, 2.18))
    for seed in SEEDS
)  # fmt: skip

UTILITY = tuple(
    Cell(
        f"noise-utility-{select}-{clients}-{noise}", _late("utility", "private"),
        {
            "rows": rows, "select": select, "width": width, "clients": clients, "noise": noise, "fraction_bits": 16,
            "seed": 1,
        },
        seconds=5,
    )
    for rows, select, width, clients, noise in (
        (197_372, 418, 18, 1_000, 0.69), (197_372, 418, 18, 10_000, 0.69), (197_372, 418, 18, 10_000, 2.18),
        (65_536, 32, 16, 1_000, 0.69), (65_536, 32, 16, 10_000, 0.69),
    )
)  # fmt: skip

EXPERIMENTS = (
    Experiment(
        "table-5",
        "Accuracy, experiment 1: top-k of all weights",
        (*TOP_MNIST, MNIST_ROWS, MNIST_WHOLE, *TOP_TREC, *TOP_CIFAR10),
        sections.top_k,
    ),
    Experiment("table-6", "Accuracy, experiment 2: mega-elements", MEGA, sections.mega_elements),
    Experiment("trec-bag", "Private rows: a bag of words on TREC", BAG, sections.bag),
    Experiment("rules", "Rules of servers: 100 clients, 10 a round", (*GRIDS, *HUNDRED), sections.rules),
    Experiment(
        "noise", "A bound and noise on TREC, and what noise leaves of a sum", (*NOISED, *UTILITY), sections.noise
    ),
)
