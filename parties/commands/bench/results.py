"""What a benchmark found: one record per figure, as JSON for programs and as a table for people.

A record's `rate` is what was done per second, `bound` what the machine could at most, in the same unit, measured in the
same run, and `ratio` = rate / bound.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from fsl_async.costs.paper import PrintedTime
from parties.commands.bench.measures import Spread
from parties.commands.report import VERSION, Report

__all__ = ["BenchReport", "Result", "Target"]


class Target(NamedTuple):
    """What a figure ought to be.

    Attributes:
        figure: what it is.
        sense: which side of the limit is right.
        limit: the limit.
        unit: of both.
    """

    figure: float
    sense: Literal["at most", "at least"]
    limit: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether it is."""
        return self.figure <= self.limit if self.sense == "at most" else self.figure >= self.limit

    def __str__(self) -> str:
        sign = "≤" if self.sense == "at most" else "≥"
        return f"{'met' if self.met else 'MISSED'}: {self.figure:.4g} {sign} {self.limit:.4g} {self.unit}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One figure.

    Attributes:
        name: what was measured.
        parameters: of what.
        seconds: how long it took.
        rate: what was done per second, in `unit`; or a figure that is no rate, such as bytes.
        unit: of `rate` and `bound`.
        bound: the most that the machine could do; None where there is none.
        against: what the bound is.
        paper: the paper's time, or its figure in bytes where `unit` is; None where there is none.
        targets: what the figure ought to be.
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
        """The same of the least seconds and the greatest bound: on a busy machine the one that others disturb least."""
        if not self.bound or not self.unit.endswith("/s"):
            return None
        return self.rate * self.seconds.median / self.seconds.least / self.bound.greatest

    def plain(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return {
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
            "targets": [{**target._asdict(), "met": target.met} for target in self.targets],
        }

    def cells(self) -> tuple[str, ...]:
        """The record as a line of a table."""
        timeless = self.seconds.greatest == 0
        return (
            self.name,
            "" if timeless else _milliseconds(self.seconds),
            _scaled(self.rate, self.unit),
            "" if self.bound is None else _scaled(self.bound.median, self.unit),
            "" if self.ratio is None else f"{self.ratio:.2f}",
            "" if self.paper is None else _paper(self.paper, self.unit),
            "; ".join(str(target) for target in self.targets),
        )


LEAST_WIDTH = 170
"""Of a table, in characters: a narrower one could not be read."""
HEADINGS = ("what", "ms (min–max)", "rate", "bound", "ratio", "paper", "target")


class BenchReport(Report):
    """Where a benchmark writes; its JSON has the results at the top."""

    def results(self, results: Sequence[Result]) -> None:
        """Write all results: a table, or the object that says the same."""
        if self.form == "json":
            plain = [result.plain() for result in results]
            self._write({"version": VERSION, "command": self.command, "results": plain})
            return
        table = Table(*HEADINGS, title=self.command, title_justify="left", box=SIMPLE, pad_edge=False)
        for result in results:
            table.add_row(*result.cells())
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
