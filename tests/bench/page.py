"""The page that `bench all --write DIR` writes: README.md with every figure, and plots of how costs grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsl_async.errors import MisuseError, StorageError
from fsl_async.kernels import active_isa
from parties.commands.bench.machine import cores, processor
from tests.bench.growth import START, axes
from tests.bench.measures import versions
from tests.bench.results import Result, headings

PLOT_INCHES = (6.0, 4.0)
CURVES = {"generate": "client: generate", "evaluate": "server: evaluate, verified"}

COMMANDS = {
    "kernels": "Evaluation of one client's trees by one server",
    "psr": "Private retrieval by one server",
    "retrieval": "Authenticated answers beside plain ones",
    "generate": "Generation by a client",
    "bounds": "A bounded update beside the same without a bound, and noise",
    "contributors": "An update with counts of contributors beside the same without",
    "sketch": "The paper's sketch beside verified trees",
    "round": "A round of secure aggregation",
    "large": "A round with m = 2^25",
    "din": "The paper's deep interest network",
    "growth": "Growth",
}
"""By part of a run, its heading; the suite has the same name, except for `large`."""


def check_writable(folder: Path) -> None:
    """Check before the first measurement that the page can be written.

    Raises:
        MisuseError: matplotlib is missing.
        StorageError: the folder cannot be made.
    """
    _pyplot()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error}; choose another folder") from error


def write_page(
    folder: Path, parts: Mapping[str, Sequence[Result]], seconds: float, *, targets: bool = False
) -> list[Path]:
    """Write the page and its plots, with targets only if they are wanted, and return what was written."""
    plots = [_plot(folder, axis.name, axis.label, parts["growth"]) for axis in axes(START)]
    page = folder / "README.md"
    page.write_text(_text(parts, plots, seconds, targets=targets), encoding="utf-8")
    return [page, *plots]


def _text(parts: Mapping[str, Sequence[Result]], plots: Sequence[Path], seconds: float, *, targets: bool) -> str:
    used = ", ".join(f"{name} {version}" for name, version in versions().items())
    every = [target for results in parts.values() for result in results for target in result.targets]
    met = f" {sum(target.met for target in every)} of {len(every)} targets are met." if targets else ""
    head = f"""# Benchmarks

Measured on {processor()}, {cores()} cores, AES by `{active_isa()}`; {used}. One run of {seconds:,.0f} s; make it
again with

    python -m tests.bench all --write docs/benchmarks

Seconds are medians, with the least and the greatest. *Bound* is what this machine could at most do, measured in turns
with the figure: AES under a fixed key in cache, divided by the blocks that a leaf or a tree is counted as, or memory
read or updated from end to end, with as many threads as the figure; *ratio* is rate / bound. *Paper* is the figure in
the paper, on 64 cores; "≤" stands where a printed cell cannot be right, before the most that it may have been
(docs/planner.md). Two cores of a virtual machine may share one of a real one: then a second thread gains nothing,
and its bound says so.{met}
"""
    sections = [_section(part, results, targets=targets) for part, results in parts.items()]
    pictures = "\n".join(f"![{plot.stem}]({plot.name})" for plot in plots)
    return "\n".join((head, *sections, pictures, ""))


def _section(part: str, results: Sequence[Result], *, targets: bool) -> str:
    command = "round --rows 33554432 --bits 32" if part == "large" else part
    lines = (_row(result.cells(targets=targets)) for result in results)
    return "\n".join(
        (
            f"## {COMMANDS[part]}",
            "",
            f"    python -m tests.bench {command}",
            "",
            _row(headings(targets=targets)),
            _row(["---"] * len(headings(targets=targets))),
            *lines,
            "",
        )
    )


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


# ---- plots


def _pyplot() -> Any:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MisuseError(
            "plots need matplotlib, which is not installed: install fsl-async[plot], or leave out --write"
        ) from error
    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _plot(folder: Path, name: str, label: str, results: Sequence[Result]) -> Path:
    pyplot = _pyplot()
    figure, area = pyplot.subplots(figsize=PLOT_INCHES)
    for curve, name_of_curve in CURVES.items():
        points = [
            (result.parameters[name], result.seconds)
            for result in results
            if result.parameters["axis"] == name and result.parameters["curve"] == curve
        ]
        middle = [1e3 * seconds.median for _, seconds in points]
        below = [1e3 * (seconds.median - seconds.least) for _, seconds in points]
        above = [1e3 * (seconds.greatest - seconds.median) for _, seconds in points]
        area.errorbar([at for at, _ in points], middle, yerr=(below, above), marker="o", capsize=3, label=name_of_curve)
    area.set(xscale="log", yscale="log", xlabel=label, ylabel="milliseconds")
    values = sorted({result.parameters[name] for result in results if result.parameters["axis"] == name})
    area.set_xticks(values, labels=[f"{value:,}" for value in values])
    area.xaxis.set_minor_locator(pyplot.NullLocator())
    for formatted in (area.yaxis.set_major_formatter, area.yaxis.set_minor_formatter):
        formatted("{x:g}")
    area.grid(visible=True, which="major", alpha=0.3)
    area.legend()
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return path
