"""The page and its pictures, made from the results and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from examples.paper.cells import Experiment, Picture, Result, Results, Section
from examples.paper.markdown import ABSENT, filled, table
from examples.paper.registry import cells_of

PICTURES = "paper"
"""The folder of pictures and results, beside the page."""

INCHES = (7.0, 4.2)
STYLE: Any = {"svg.hashsalt": "fsl-async", "svg.fonttype": "none", "figure.figsize": INCHES, "figure.dpi": 100}


def write_page(page: Path, experiments: Sequence[Experiment], results: Results) -> list[Path]:
    """Write the page, and its pictures where matplotlib is installed; without it they stay as they are.

    Args:
        page: its file; pictures go into the folder `PICTURES` beside it.
        experiments: its sections, in order.
        results: of their cells; the page says which are missing.

    Returns:
        What was written.
    """
    sections = [experiment.section(results) for experiment in experiments]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(_text(experiments, sections, results), encoding="utf-8")
    written = [page]
    if find_spec("matplotlib"):
        for picture in (picture for section in sections for picture in section.pictures):
            path = page.parent / PICTURES / f"{picture.name}.svg"
            draw(picture, path)
            written.append(path)
    return written


def draw(picture: Picture, path: Path) -> None:
    """Write a picture as SVG: equal results make equal bytes."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure()
        FigureCanvasSVG(figure)
        picture.draw(figure)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def text(experiments: Sequence[Experiment], results: Results) -> str:
    """The page."""
    return _text(experiments, [experiment.section(results) for experiment in experiments], results)


def _text(experiments: Sequence[Experiment], sections: Sequence[Section], results: Results) -> str:
    bodies = (_section(*both, results) for both in zip(experiments, sections, strict=True))
    return filled("\n\n".join((_head(experiments, results), *bodies, _account(experiments, results)))) + "\n"


def _head(experiments: Sequence[Experiment], results: Results) -> str:
    listed = "\n".join(f"- [{each.title}](#{_anchor(each)}) (`{each.name}`)" for each in experiments)
    there = [results.by_cell[cell.name] for cell in cells_of(experiments) if cell.name in results.by_cell]
    seconds = sum(result.processor_seconds for result in there)
    return f"""# The paper's experiments

The tables and figures of *Practical and Light-weight Secure Aggregation for Federated Submodel Learning*, made by the
program that implements it: every figure comes from the functions that clients and servers run, the paper's stands
beside ours, and where the trivial protocol (plain sharing of the whole model) is cheaper, it says so. What implements
which part of the paper is on [its own page](paper.md).

    make paper

makes the page again from the results in `docs/paper/`, and first computes those that are missing; it goes on where it
was killed. `python -m examples.paper --list` names all cells with their processor seconds, `--only table-3` computes
only some, and `--again table-3` computes them anew. A cell that needs PyTorch or a data set that is not there is
skipped, and says so. These results took {seconds:,.0f} processor seconds in all.

{_machines(there)}

{listed}"""


def _machines(there: Sequence[Result]) -> str:
    counted = Counter(
        f"{result.machine['processor']}, {result.machine['cores']} cores, AES by `{result.machine['instructions']}`; "
        + ", ".join(f"{name} {version}" for name, version in result.versions.items() if name != "torch")
        for result in there
    )
    if not counted:
        return "Nothing was computed yet."
    if len(counted) == 1:
        return f"Machine: {next(iter(counted))}. The paper's had 64 cores."
    return "\n".join(("Machines:", "", *(f"- {name}: {count} cells" for name, count in counted.most_common())))


def _section(experiment: Experiment, section: Section, results: Results) -> str:
    missing = [f"`{cell.name}`" for cell in experiment.cells if cell.name not in results.by_cell]
    pictures = [f"![{each.about}]({PICTURES}/{each.name}.svg)\n\n*{each.about}*" for each in section.pictures]
    smaller = dict.fromkeys(cell.smaller for cell in experiment.cells if cell.smaller and cell.name in results.by_cell)
    less = [f"Smaller than in the paper: {words}." for words in smaller]
    absent = [f"Not computed yet: {', '.join(missing)}."] if missing else []
    return "\n\n".join((f"## {experiment.title}", section.text, *pictures, *less, *absent))


def _anchor(experiment: Experiment) -> str:
    kept = "".join(letter for letter in experiment.title.lower() if letter.isalnum() or letter in " -_")
    return "-".join(kept.split())


def _account(experiments: Sequence[Experiment], results: Results) -> str:
    header = ("cell", "processor seconds", "seconds", "load when it began", "smaller than in the paper")
    lines = [_cell(results.by_cell[cell.name]) for cell in cells_of(experiments) if cell.name in results.by_cell]
    return f"""## How they were computed

One line for each cell, with a link to its result. The load is the number of processes that wanted to run: where it is
above the number of cores, seconds are longer than on a quiet machine, and the spread of repeats shows it.

{table(header, lines)}"""


def _cell(result: Result) -> list[str]:
    name = f"[{result.cell}]({PICTURES}/{result.cell}.json)"
    return [
        name,
        f"{result.processor_seconds:,.1f}",
        f"{result.wall_seconds:,.1f}",
        f"{result.load:.1f}",
        result.smaller or ABSENT,
    ]
