"""Runs the cells that have no result yet, one after the other.

A cell's result is written when it is done, so a run that was killed goes on where it was; within a long cell, from its
last checkpoint. A cell that fails does not keep the others from running.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from examples.paper.cells import Cell, Result, Run
from examples.paper.clock import Clock
from examples.paper.results import DamagedResultError, ResultFolder
from examples.paper.surroundings import machine, missing, used_versions


@dataclass(frozen=True)
class Outcome:
    """What became of the cells that were to be run, by name.

    Attributes:
        computed: now.
        kept: before, by an earlier run.
        skipped: with what was missing.
        failed: with the error.
    """

    computed: tuple[str, ...]
    kept: tuple[str, ...]
    skipped: dict[str, str]
    failed: dict[str, str]


def run_cells(
    cells: Sequence[Cell], results: ResultFolder, *, data: Path, checkpoints: Path, console: Console
) -> Outcome:
    """Compute the cells that have no result, and write each result when it is done.

    Args:
        cells: in this order.
        results: where results are.
        data: the folder of the data sets.
        checkpoints: the folder where long cells store where they are.
        console: where progress is shown, and a line for each cell.
    """
    computed: list[str] = []
    kept: list[str] = []
    skipped: dict[str, str] = {}
    failed: dict[str, str] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    # Without automatic refresh: a thread that draws would take time from what is measured.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        whole = progress.add_task("", total=sum(cell.seconds for cell in cells) or 1)
        for number, cell in enumerate(cells, 1):
            progress.update(whole, description=f"{number} of {len(cells)}: {cell.name}", refresh=True)
            absent = _absent(cell, data)
            try:
                if results.read(cell) is not None:
                    kept.append(cell.name)
                elif absent:
                    skipped[cell.name] = absent
                    progress.console.print(f"[yellow]skipped[/] {cell.name}: {escape(absent)}", highlight=False)
                else:
                    part = progress.add_task("", total=1)
                    result = _compute(cell, data, checkpoints, _reporter(progress, part, cell))
                    results.write(cell, result)
                    _checkpoint(cell, checkpoints).unlink(missing_ok=True)
                    computed.append(cell.name)
                    progress.remove_task(part)
                    progress.console.print(
                        f"[green]done[/] {cell.name}: {result.processor_seconds:,.1f} processor seconds",
                        highlight=False,
                    )
            except DamagedResultError as error:
                failed[cell.name] = str(error)
            except Exception as error:
                failed[cell.name] = "".join(traceback.format_exception(error))
            if cell.name in failed:
                progress.console.print(f"[red]failed[/] {cell.name}: {escape(failed[cell.name])}", highlight=False)
            progress.advance(whole, cell.seconds)
    return Outcome(tuple(computed), tuple(kept), skipped, failed)


def _absent(cell: Cell, data: Path) -> str:
    return next(filter(None, (missing(need, data) for need in cell.needs)), "")


def _checkpoint(cell: Cell, checkpoints: Path) -> Path:
    return checkpoints / f"{cell.name}.{cell.key}.npz"


def _compute(cell: Cell, data: Path, checkpoints: Path, report: Callable[[float, str], None]) -> Result:
    load, clock = os.getloadavg()[0], Clock()
    values = cell.compute(Run(cell, data, _checkpoint(cell, checkpoints), clock, report))
    return Result(
        cell=cell.name,
        key=cell.key,
        parameters=dict(cell.parameters),
        smaller=cell.smaller,
        values=values,
        processor_seconds=round(clock.processor, 3),
        wall_seconds=round(clock.wall, 3),
        versions=used_versions(),
        machine=machine(),
        load=round(load, 2),
    )


def _reporter(progress: Progress, part: object, cell: Cell) -> Callable[[float, str], None]:
    def report(done: float, note: str) -> None:
        progress.update(part, completed=done, description=f"{cell.name} {escape(note)}", refresh=True)  # type: ignore[arg-type]

    return report
