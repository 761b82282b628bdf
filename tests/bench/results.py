"""The results of benchmarks: one record per figure, as JSON for programs and as a table for people.

A record's `rate` is the work per second, `bound` the most that the machine could do, in the same unit and measured in
the same run, and `ratio` = rate / bound. Targets are for developers of the kernels, who ask for them with `--targets`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from examples.paper.efficiency.printed import PrintedTime
from parties.commands.report import VERSION, Format, Report
from tests.bench.measures import Spread


class Target(NamedTuple):
    """A target for a figure.

    Attributes:
        figure: the measured figure.
        sense: whether the figure must be at most or at least the limit.
        limit: the limit.
        unit: the unit of figure and limit.
    """

    figure: float
    sense: Literal["at most", "at least"]
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.figure <= self.limit if self.sense == "at most" else self.figure >= self.limit

    def __str__(self) -> str:
        sign = "≤" if self.sense == "at most" else "≥"
        return f"{'met' if self.met else 'MISSED'}: {self.figure:.4g} {sign} {self.limit:.4g} {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One figure.

    Attributes:
        name: what was measured.
        parameters: the parameters of the measurement.
        seconds: the measured seconds.
        rate: the work per second, in `unit`; or a figure that is not a rate, such as bytes.
        unit: the unit of `rate` and `bound`.
        bound: the most that the machine could do; None if there is none.
        against: the name of the bound.
        paper: the paper's time, or its figure in bytes if `unit` is bytes; None if there is none.
        targets: the targets for the figure.
    """

    name: str
    parameters: Mapping[str, Any]
    seconds: Spread
    rate: float
    unit: str
    bound: Spread | None = None
    against: str = ""
    paper: PrintedTime | float | None = None
    targets: tuple[Target, ...] = field(default=())

    @property
    def ratio(self) -> float | None:
        """Rate / bound."""
        return self.rate / self.bound.median if self.bound else None

    @property
    def best_ratio(self) -> float | None:
        """The ratio of the least seconds and the greatest bound, which other load disturbs least."""
        if not self.bound or not self.unit.endswith("/s"):
            return None
        return self.rate * self.seconds.median / self.seconds.least / self.bound.greatest

    def plain(self, *, targets: bool = False) -> dict[str, Any]:
        """The record as a JSON object, with targets only if they are wanted."""
        plain: dict[str, Any] = {
            "name": self.name,
            "parameters": dict(self.parameters),
            "seconds": self.seconds.median,
            "rate": self.rate,
            "unit": self.unit,
            "bound": self.bound.median if self.bound else None,
            "ratio": self.ratio,
            "paper": self.paper.seconds if isinstance(self.paper, PrintedTime) else self.paper,
            "paper_at_most": isinstance(self.paper, PrintedTime) and self.paper.at_most,
            "seconds_min": self.seconds.least,
            "seconds_max": self.seconds.greatest,
            "bound_min": self.bound.least if self.bound else None,
            "bound_max": self.bound.greatest if self.bound else None,
            "ratio_best": self.best_ratio,
            "bound_is": self.against,
        }
        if targets:
            plain["targets"] = [{**target._asdict(), "met": target.met} for target in self.targets]
        return plain

    def cells(self, *, targets: bool = False) -> tuple[str, ...]:
        """The record as a line of a table, with targets only if they are wanted."""
        timeless = self.seconds.greatest == 0
        shown = (
            self.name,
            "" if timeless else _milliseconds(self.seconds),
            _scaled(self.rate, self.unit),
            "" if self.bound is None else _scaled(self.bound.median, self.unit),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.paper is None else _paper(self.paper, self.unit),
        )
        return (*shown, "; ".join(str(target) for target in self.targets)) if targets else shown


LEAST_WIDTH = 170
"""The least width of a table in characters; a narrower one would not be readable."""
HEADINGS = ("what", "ms (min–max)", "rate", "bound", "ratio", "paper")
TARGET_HEADING = "target"


def headings(*, targets: bool) -> tuple[str, ...]:
    """What stands above the cells of a result."""
    return (*HEADINGS, TARGET_HEADING) if targets else HEADINGS


class BenchReport(Report):
    """The report of a benchmark; its JSON has the results at the top level.

    Attributes:
        targets: whether figures are shown with their targets, met or missed.
    """

    def __init__(self, command: str, form: Format, *, targets: bool = False) -> None:
        super().__init__(command, form)
        self.targets = targets

    def results(self, results: Sequence[Result]) -> None:
        """Write all results, as a table or as a JSON object."""
        if self.form == "json":
            plain = [result.plain(targets=self.targets) for result in results]
            self._write({"version": VERSION, "command": self.command, "results": plain})
            return
        table = Table(
            *headings(targets=self.targets), title=self.command, title_justify="left", box=SIMPLE, pad_edge=False
        )
        for result in results:
            table.add_row(*result.cells(targets=self.targets))
        width = max(Console(file=sys.stdout).width, LEAST_WIDTH)
        Console(file=sys.stdout, highlight=False, width=width).print(table)


def _milliseconds(seconds: Spread) -> str:
    median, least, greatest = (f"{1e3 * value:,.3g}" if value < 1 else f"{1e3 * value:,.0f}" for value in seconds)
    return median if least == greatest else f"{median} ({least}–{greatest})"


def _scaled(value: float, unit: str) -> str:
    for prefix, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {prefix} {unit}"
    return f"{value:.3g} {unit}"


def _paper(figure: PrintedTime | float, unit: str) -> str:
    if isinstance(figure, PrintedTime):
        return f"{'≤ ' if figure.at_most else ''}{figure.seconds:g} s"
    return _scaled(figure, unit)
