"""`python -m examples.paper`: compute the paper's experiments, and write docs/paper-results.md."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from examples.paper.cells import Experiment
from examples.paper.page import PICTURES, write_page
from examples.paper.registry import EXPERIMENTS, cells_of, chosen
from examples.paper.results import ResultFolder
from examples.paper.running import run_cells
from examples.paper.surroundings import ROOT, default_data, missing
from fsl_async import FslError

PAGE = "paper-results.md"


def main(arguments: Sequence[str] | None = None, experiments: Sequence[Experiment] = EXPERIMENTS) -> int:
    """The command; 0 if no cell failed, 1 if one did, 2 if it was used wrongly, 130 if it was interrupted."""
    options = _parser().parse_args(arguments)
    console = Console(stderr=True)
    try:
        return _run(options, experiments, console)
    except FslError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on where it was", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples.paper", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="experiments or cells to compute; all without it"
    )
    parser.add_argument("--again", nargs="+", default=[], metavar="NAME", help="those to compute anew, and no others")
    parser.add_argument("--list", action="store_true", help="name experiments and cells, and compute nothing")
    parser.add_argument("--page", action="store_true", help="write the page of the results that there are")
    parser.add_argument("--data", type=Path, default=default_data(), help="the folder of data sets (%(default)s)")
    parser.add_argument("--write", type=Path, default=ROOT / "docs", help="where page and results go (%(default)s)")
    return parser


def _run(options: argparse.Namespace, experiments: Sequence[Experiment], console: Console) -> int:
    cells, results = cells_of(experiments), ResultFolder(options.write / PICTURES)
    if options.list:
        _show(experiments, results, options.data)
        return 0
    again = chosen(experiments, options.again)
    names = (*options.only, *options.again)
    asked = () if options.page else chosen(experiments, names) if names else cells
    for cell in again:
        results.forget(cell)
    outcome = run_cells(asked, results, data=options.data, checkpoints=ROOT / ".paper", console=console)
    for path in write_page(options.write / PAGE, experiments, results.read_all(cells)):
        print(path)
    return 1 if outcome.failed else 0


def _show(experiments: Sequence[Experiment], results: ResultFolder, data: Path) -> None:
    shown = Table("experiment", "cell", "processor seconds, about", "state", box=None)
    for experiment in experiments:
        for cell in experiment.cells:
            absent = next(filter(None, (missing(need, data) for need in cell.needs)), "")
            state = "computed" if results.read(cell) is not None else absent or "to compute"
            shown.add_row(experiment.name, cell.name, f"{cell.seconds:,.0f}", state)
    Console().print(shown)


if __name__ == "__main__":
    sys.exit(main())
