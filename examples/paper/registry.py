"""All experiments, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence

from examples.paper.accuracy.experiments import EXPERIMENTS as ACCURACY
from examples.paper.cells import Cell, Experiment
from examples.paper.efficiency.experiments import EXPERIMENTS as EFFICIENCY
from fsl_async import MisuseError

EXPERIMENTS: tuple[Experiment, ...] = (*EFFICIENCY, *ACCURACY)


def cells_of(experiments: Sequence[Experiment]) -> tuple[Cell, ...]:
    """Their cells, each once, in order.

    Raises:
        MisuseError: two different cells have one name.
    """
    found: dict[str, Cell] = {}
    for cell in (cell for experiment in experiments for cell in experiment.cells):
        if found.setdefault(cell.name, cell) != cell:
            raise MisuseError(f"two different cells have the name {cell.name!r}; rename one")
    return tuple(found.values())


def chosen(experiments: Sequence[Experiment], names: Sequence[str]) -> tuple[Cell, ...]:
    """The cells of these names, where an experiment's name stands for all of its cells.

    Raises:
        MisuseError: there is nothing of a name; the message says what there is.
    """
    cells = cells_of(experiments)
    groups = {cell.name: (cell,) for cell in cells} | {each.name: each.cells for each in experiments}
    for name in names:
        if name not in groups:
            raise MisuseError(
                f"there is no {name!r}: expected a cell (see --list), or one of {', '.join(_names(experiments))}"
            )
    picked = {cell.name for name in names for cell in groups[name]}
    return tuple(cell for cell in cells if cell.name in picked)


def _names(experiments: Sequence[Experiment]) -> list[str]:
    return [experiment.name for experiment in experiments]
