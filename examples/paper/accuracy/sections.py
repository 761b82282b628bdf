"""What the page says of the accuracy experiments: tables of the results that there are, beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from examples.paper.cells import Results, Section, Values
from examples.paper.markdown import ABSENT, table

TOP_K = {
    "MNIST": (
        "97.36 ± 0.12", "97.40 ± 0.13", "97.43 ± 0.13", "97.45 ± 0.13",
        "97.47 ± 0.13", "97.47 ± 0.13", "97.47 ± 0.13",
    ),
    "CIFAR10": (
        "58.79 ± 1.17", "59.15 ± 1.17", "59.46 ± 1.09", "59.58 ± 1.05",
        "59.62 ± 1.02", "59.67 ± 1.12", "59.57 ± 1.10",
    ),
    "TREC": (
        "88.87 ± 0.50", "89.20 ± 0.87", "89.20 ± 0.20", "89.47 ± 0.70",
        "89.60 ± 0.87", "89.60 ± 0.87", "89.60 ± 0.87",
    ),
}  # fmt: skip
"""The paper's table "Accuracy Experiment 1", at the percentages of `RATES`."""

MEGA = {"0.0125": "84.73 ± 0.76", "0.1": "88.60 ± 0.87", "1": "89.67 ± 0.23", "10": "89.73 ± 0.31"}
"""The paper's table "Accuracy Experiment 2", by percentage."""

RATES = (5, 10, 20, 40, 60, 80, 100)


def top_k(results: Results) -> Section:
    """Experiment 1: top-k of all weights."""
    columns = {"MNIST": "mnist-top-{}", "CIFAR10": "cifar10-top-{}", "TREC": "trec-top-{}"}
    header = ["test accuracy in %", *(f"{rate} %" for rate in RATES)]
    lines = []
    for name, cells in columns.items():
        lines.append([f"{name}, here", *(_accuracy(results.of(cells.format(rate))) for rate in RATES)])
        lines.append([f"{name}, the paper", *TOP_K[name]])
    secure = [
        ("54,314 weights, 5 % in rows of 16", "mnist-rows-of-16"),
        ("1,663,370 weights, 5 % in rows of 16", "mnist-cnn-1663370"),
        ("CIFAR-10, 2,156,490 weights, 5 % in rows of 16", "cifar10-top-5"),
    ]
    runs = [_secure_line(label, results.of(cell)) for label, cell in secure]
    text = [
        table(header, lines),
        "The table's own cells learn in the clear: what the protocol sums is the same in every bit, as the runs below "
        "show. By trees single weights of this CNN pay up to 2.6 % of them, and rows of 16 up to 40 % (`fsl-async plan "
        "--rows 54314 --select 2716 --updates any`); above that the trivial protocol is the cheaper one. Weights that "
        "were not submitted are kept by the client, and added to its next change (error feedback). CIFAR-10 is "
        "computed where its six batches lie in the data's folder, as `cifar10`.",
        "The same through both servers, and beside it in the clear:",
        table(_SECURE, runs),
    ]
    return Section("\n\n".join(text))


def mega_elements(results: Results) -> Section:
    """Experiment 2: rows of the words' table."""
    header = ["rows submitted of the words' table", "accuracy, the paper", "accuracy, here (seeds 1, 2)", *_SECURE[2:]]
    lines = []
    for rate, paper in MEGA.items():
        runs = [results.of(f"trec-mega-{rate}-{seed}") for seed in (1, 2)]
        rows = next((f" ({_sparse(run)['select']:,} of {_sparse(run)['rows']:,})" for run in runs if run), "")
        accuracies = ", ".join(_accuracy(run) for run in runs)
        lines.append([f"{rate} %{rows}", paper, accuracies, *_secure_line("", runs[0])[2:]])
    text = [
        table(header, lines),
        "Every client downloads the whole model, trains all of it, and submits the words whose rows changed most, by "
        "the sum of the absolute values; the rest of the model is dense and submitted whole. Seconds and bytes are "
        "those of seed 1.",
    ]
    return Section("\n\n".join(text))


def bag(results: Results) -> Section:
    """Private rows."""
    lines = [_secure_line(f"seed {seed}", results.of(f"trec-bag-{seed}")) for seed in (1, 2, 3)]
    text = (
        "Four clients learn word vectors of 50 weights and a linear layer. In every round a client retrieves the rows "
        "of the words in its questions, and submits its changes of those rows: neither server learns which words it "
        "has. The epsilon of the clients' Adam is 0.0001: with the usual 1e-8 seed 3 fell from 85.8 % after 59 rounds "
        "to 74.8 % after 60, in the clear as through the servers, because clients that have learnt their questions "
        "then step by gradients of nearly nothing."
    )
    return Section(f"{text}\n\n{table(_SECURE, lines)}")


def rules(results: Results) -> Section:
    """Rules of servers, each with the best settings of its grid."""
    names = {"fedavg": "FedAvg", "fedavgm": "FedAvgM", "fedadam": "FedAdam"}
    lines = []
    for rule, label in names.items():
        runs = [results.of(f"trec-100-{rule}-{seed}") for seed in (1, 2, 3)]
        accuracies = ", ".join(_accuracy(run) for run in runs)
        lines.append([label, accuracies, *_secure_line("", runs[0])[2:]])
    grids = [_grid(label, results.of(f"trec-grid-{rule}")) for rule, label in names.items()]
    text = [
        "The bag of words with 100 clients, of which 10 take part in a round, and 40 rounds. The settings are the best "
        "of one grid for each rule, measured in the clear on 500 questions for training that were held out, with one "
        "seed.",
        table(["rule", "accuracy (seeds 1, 2, 3)", *_SECURE[2:]], lines),
        "The grids: accuracy on the held-out questions, by the server's rate (across) and the clients' (down). "
        "FedAvg's server multiplies the mean by its rate.",
        *filter(None, grids),
    ]
    return Section("\n\n".join(text))


def noise(results: Results) -> Section:
    """TREC with a bound and noise, and what noise leaves of one sum."""
    lines = []
    for rounds in (5, 10):
        runs = [found for seed in (1, 2, 3) if (found := results.of(f"trec-noised-{rounds}-{seed}"))]
        accuracies = [_three(runs, kind) for kind in ("plain", "bounded", "noised")]
        epsilon, rows = (f"{runs[0]['epsilon']:.3f}", f"{runs[0]['noised']['rows']:,}") if runs else (ABSENT, ABSENT)
        lines.append([str(rounds), epsilon, *accuracies, rows])
    utility = [
        [f"{rows:,}, {select}, {width}", f"{clients:,}", f"{sigma:g}", *_left(results, select, clients, sigma)]
        for rows, select, width, clients, sigma in (
            (197_372, 418, 18, 1_000, 0.69), (197_372, 418, 18, 10_000, 0.69), (197_372, 418, 18, 10_000, 2.18),
            (65_536, 32, 16, 1_000, 0.69), (65_536, 32, 16, 10_000, 0.69),
        )
    ]  # fmt: skip
    text = [
        "Ten thousand simulated clients hold one question each, of the 5,452 (so a question has about two clients: "
        "what is private is a client), and learn six numbers for each word; servers step by Adam. The sums are made in "
        "the clear, because the protocol's are equal to them in every bit, as the runs above show; encoding, clipping "
        "to the task's bound, both servers' noise, the threshold of rows and ε are the library's. δ = 10^-6. Settings, "
        "the same in all cells, were chosen for five rounds with noise on 500 questions for training that were held "
        "out; the plain run oversteps with them after five rounds.",
        table(
            [
                "rounds",
                "ε of all",
                "plain (seeds 1, 2, 3)",
                "with the bound",
                "with bound and noise",
                "rows kept a round",
            ],
            lines,
        ),
        "What noise leaves of one sum, as relative squared error: rows by Zipf's law, half of the energy of each "
        "change common to all clients. A row with fewer contributors than c\\* is mostly noise.",
        table(
            ["m, k, τ", "clients", "z", "noise on all rows", "rows above noise alone", "rows kept", "c\\*"],
            utility,
        ),
    ]
    return Section("\n\n".join(text))


def _three(runs: Sequence[Values], kind: str) -> str:
    return ", ".join(f"{run[kind]['accuracy']:.1f}" for run in runs) or ABSENT


def _left(results: Results, select: int, clients: int, sigma: float) -> list[str]:
    found = results.of(f"noise-utility-{select}-{clients}-{sigma}")
    if found is None:
        return [ABSENT] * 4
    errors = (f"{found[kind]:.2g}" for kind in ("all_rows", "threshold"))
    return [*errors, f"{found['rows_kept']:,}", f"{found['contributors_for_signal']:.0f}"]


_SECURE = [
    "run", "accuracy", "rounds equal to the clear", "processor seconds, all parties", "in the clear", "bytes up",
    "bytes down",
]  # fmt: skip


def _secure_line(label: str, values: Values | None) -> list[str]:
    if values is None:
        return [label, *[ABSENT] * (len(_SECURE) - 1)]
    seconds = f"{values['party_seconds']:,.1f}", f"{values['clear_seconds']:,.1f}"
    rounds = f"{values['equal_rounds']} of {max(map(int, values['accuracies']))}"
    return [label, _accuracy(values), rounds, *seconds, f"{values['bytes_up']:,}", f"{values['bytes_down']:,}"]


def _sparse(values: Values) -> Values:
    return next(block for block in values["blocks"] if "select" in block)


def _grid(label: str, values: Values | None) -> str:
    if values is None:
        return ""
    settings = values["settings"]
    across = list(dict.fromkeys(one["rule"]["rate"] for one in settings))
    lines = [
        [f"{rate}", *(f"{one['accuracy']:.1f}" for one in settings if one["client_rate"] == rate)]
        for rate in dict.fromkeys(one["client_rate"] for one in settings)
    ]
    return table([label, *(f"{rate}" for rate in across)], lines)


def _accuracy(values: Values | None) -> str:
    return ABSENT if values is None else f"{values['accuracy']:.2f}"
