"""The paper's two figures of efficiency, of our seconds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from examples.paper.cells import Results
from examples.paper.efficiency.printed import AGGREGATION, EVALUATION, GENERATION

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


STEPS = {
    "generation": ("DPF Gen, client", "#2a7f9e"),
    "evaluation": ("DPF Eval, server", "#c98a2b"),
    "aggregation": ("aggregation, server", "#7a4f9e"),
}
PRINTED: Mapping[str, Mapping[int, Mapping[int, float]]] = {
    "generation": GENERATION,
    "evaluation": {
        rows: {round(100 * fraction): seconds for fraction, seconds in row.items()} for rows, row in EVALUATION.items()
    },
    "aggregation": AGGREGATION,
}


def by_size(results: Results, figure: Figure) -> None:
    """Three panels, 10, 20 and 30 %: seconds by m."""
    figure.set_size_inches(11, 4.2)
    panels = figure.subplots(1, 3, sharey=True)
    for panel, percent in zip(panels, (10, 20, 30), strict=True):
        sizes = [2**power for power in range(10, 21)]
        for step in STEPS:
            points = [(rows, results.of(f"steps-{rows}-{percent}")) for rows in sizes]
            _curve(panel, step, [(rows, values["verified"][step]) for rows, values in points if values])
            printed = [(rows, row[percent]) for rows, row in PRINTED[step].items() if percent in row]
            panel.plot(*zip(*printed, strict=True), "x", color=STEPS[step][1], label=f"{STEPS[step][0]}, the paper")
        panel.set(xscale="log", yscale="log", xlabel="m, weights", title=f"k/m = {percent} %")
        panel.set_xscale("log", base=2)
        panel.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("seconds (ours: of one thread)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.16))


def by_rate(results: Results, figure: Figure) -> None:
    """One panel: seconds by k/m."""
    panel = figure.subplots()
    for step in STEPS:
        points = [(percent, results.of(f"steps-32768-{percent}")) for percent in range(10, 101, 10)]
        _curve(panel, step, [(percent, values["verified"][step]) for percent, values in points if values])
    panel.set(xlabel="k/m, %", ylabel="seconds of one thread", ylim=(0, None))
    panel.grid(visible=True, alpha=0.3)
    panel.legend()


def _curve(panel: Axes, step: str, points: Sequence[tuple[int, Sequence[float]]]) -> None:
    """Medians, with the least and the greatest."""
    if not points:
        return
    label, colour = STEPS[step]
    middle = [statistics.median(seconds) for _, seconds in points]
    below = [middle[n] - min(seconds) for n, (_, seconds) in enumerate(points)]
    above = [max(seconds) - middle[n] for n, (_, seconds) in enumerate(points)]
    panel.errorbar(
        [at for at, _ in points],
        middle,
        yerr=(below, above),
        marker="o",
        markersize=3,
        capsize=2,
        color=colour,
        label=label,
    )
