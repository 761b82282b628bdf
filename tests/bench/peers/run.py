"""Runs `bench peers`: our evaluation and other libraries' in turns, each checked, and what comes of it.

Rules: before a case is measured, our sum and every program's shares are checked on trees of its sizes, and so are the
shares of every later turn; in each turn every library comes once, so that a slower minute of the machine meets all of
them; before each one the machine is idle.

Ours adds up what it evaluates, as a server does; the others write their leaves into memory. A program evaluates as many
trees as ours, whole ones of 2^depth leaves, and all of these are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fsl_async.errors import FslError, MisuseError
from fsl_async.kernels import active_isa
from fsl_async.server.aggregation import split_share
from parties.commands.bench.machine import processor, run_all
from parties.commands.bench.workload import Case, aggregate, client_of, expected
from parties.commands.plan.view import aligned
from parties.commands.report import Report
from tests.bench.evaluation import ONE_HUNDREDTH, ONE_TENTH, evaluate
from tests.bench.measures import Spread, timed
from tests.bench.peers.program import OURS, Program, Turn
from tests.bench.peers.quiet import on_one_processor, wait_until_idle

SET = (Case(select=ONE_TENTH, security="semi-honest"), Case(select=ONE_HUNDREDTH, security="semi-honest"))


@dataclass(frozen=True)
class Conditions:
    """How it is measured.

    Attributes:
        turns: how often each library comes.
        idle: processors that others may take when a turn begins.
        patience: seconds for which a program, or an idle machine, is waited for.

    Raises:
        MisuseError: a number is out of range.
    """

    turns: int = 7
    idle: float = 0.1
    patience: float = 300.0

    def __post_init__(self) -> None:
        if self.turns < 1:
            raise MisuseError(f"--turns: at least 1 expected, got {self.turns}")
        if not 0 <= self.idle < float("inf"):
            raise MisuseError(f"--idle: a number from 0 expected, got {self.idle}")
        if not 0 < self.patience < float("inf"):
            raise MisuseError(f"--patience: seconds above 0 expected, got {self.patience}")


@dataclass(frozen=True)
class Figure:
    """What one library's turns have come to in one case.

    Attributes:
        library: its name.
        case: rows and selection, and so trees and depth.
        leaves: that it evaluated in a turn.
        seconds: of all turns.
        ratio: our leaves in a second to its own, medians; 1 for ours.
    """

    library: str
    case: Case
    leaves: int
    seconds: Spread
    ratio: float

    @property
    def rate(self) -> Spread:
        """Leaves in a second."""
        return Spread(
            self.leaves / self.seconds.median, self.leaves / self.seconds.greatest, self.leaves / self.seconds.least
        )

    def plain(self) -> dict[str, Any]:
        """The figure as a JSON object."""
        return {
            "library": self.library,
            "parameters": self.case.parameters(),
            "leaves": self.leaves,
            "seconds": self.seconds.median,
            "seconds_min": self.seconds.least,
            "seconds_max": self.seconds.greatest,
            "rate": self.rate.median,
            "rate_min": self.rate.least,
            "rate_max": self.rate.greatest,
            "ours_is_times_as_fast": self.ratio,
        }


def compare(programs: Sequence[Program], conditions: Conditions, report: Report) -> None:
    """Measure, and report.

    Args:
        programs: other libraries; none for ours alone.
        conditions: how it is measured.
        report: where it is written.

    Raises:
        MisuseError: a program is refused, or the machine is never idle.
        FslError: our own sum is wrong.
    """
    with on_one_processor():
        figures = [figure for case in SET for figure in _figures(case, programs, conditions, report.progress)]
    heading = f"One processor of {processor()}, AES by {active_isa()}; medians of {conditions.turns} turns."
    text = [*_verdicts(figures), heading, "", *aligned(_table(figures))]
    report.result("\n".join(text), {"figures": [figure.plain() for figure in figures], "turns": conditions.turns})


# ---- turns


@dataclass
class _Library:
    """A library that takes turns, and what they took."""

    name: str
    turn: Callable[[], Turn]
    seconds: list[float] = field(default_factory=list)


def _figures(
    case: Case, programs: Sequence[Program], conditions: Conditions, told: Callable[[str], None]
) -> list[Figure]:
    told(f"{case.title}: checking every library's shares")
    check_ours(case)
    libraries = [
        _Library(OURS, _ours(case)),
        *(_Library(each.name, _theirs(case, each, conditions)) for each in programs),
    ]
    leaves = {each.name: each.turn().leaves for each in libraries}  # it also warms up
    for number in range(conditions.turns):
        told(f"{case.title}: turn {number + 1} of {conditions.turns}")
        for each in libraries:
            wait_until_idle(conditions.idle, conditions.patience, told)
            each.seconds.append(each.turn().seconds)
    spreads = {each.name: Spread.of(each.seconds) for each in libraries}
    ours = leaves[OURS] / spreads[OURS].median
    return [
        Figure(name, case, leaves[name], seconds, ours * seconds.median / leaves[name])
        for name, seconds in spreads.items()
    ]


def _ours(case: Case) -> Callable[[], Turn]:
    work = evaluate(case)
    return lambda: Turn(case.leaves, timed(work))


def _theirs(case: Case, program: Program, conditions: Conditions) -> Callable[[], Turn]:
    return lambda: program.turn(case.forest.trees, case.forest.depth, conditions.patience)


def check_ours(case: Case) -> None:
    """Check that both servers' sums of a client's trees add up to its update.

    Raises:
        FslError: they do not.
    """
    client = client_of(case, 0)
    shares = []
    for server, submission in enumerate(client.submissions()):
        state = aggregate(case, server)
        jobs, finish = state.jobs(submission, 1)
        run_all(jobs, 1)
        finish()
        shares.append(split_share(case.task, state.share())["block"])
    if not np.array_equal(case.task.ring.add(*shares), expected(case, [client])):
        raise FslError("our own shares do not add up to the update: this must never happen")


# ---- what is shown


def _verdicts(figures: Sequence[Figure]) -> list[str]:
    """By case, ours against the fastest of the others; nothing where there are none."""
    lines = []
    for case in dict.fromkeys(figure.case for figure in figures):
        others = [figure for figure in figures if figure.case == case and figure.library != OURS]
        if others:
            best = min(others, key=lambda figure: figure.ratio)
            lines.append(
                f"{case.title}: {OURS} is {best.ratio:.2g} × as fast as {best.library}, the fastest of the others."
            )
    return [*lines, ""] if lines else []


def _table(figures: Sequence[Figure]) -> list[list[str]]:
    lines = [["case, library", "M leaves/s", "least–greatest", f"{OURS} / it"]]
    return lines + [
        [
            f"{figure.case.title}, {figure.library}",
            _millions(figure.rate.median),
            f"{_millions(figure.rate.least)}–{_millions(figure.rate.greatest)}",
            "" if figure.library == OURS else f"{figure.ratio:.2g}",
        ]
        for figure in figures
    ]


def _millions(rate: float) -> str:
    return f"{rate / 1e6:.3g}"
