"""`plan`: what a task will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

__all__ = ["plan"]


def plan(
    task: Path | None = None,
    *,
    rows: int | None = None,
    select: int | None = None,
    width: int | None = None,
    bits: int | None = None,
    selection: Literal["adaptive", "fixed"] | None = None,
    updates: Literal["retrieved", "any"] | None = None,
    alignment: Literal["all", "union"] | None = None,
    security: Literal["verified", "semi-honest"] | None = None,
    clients: int | None = None,
    rounds: int = 1,
    union: int = 0,
    dtype: str = "f4",
    upload: float = 20,
    download: float = 100,
    link: float = 1000,
    latency: float = 5,
    cores: int = 2,
    calibrate: bool = False,
    paper: bool = False,
    plot: Path | None = None,
    form: FormatFlag = "text",
) -> int:
    """Tell whether a task is worth it, what it will cost, and what to change; nothing is run.

    Parameters
    ----------
    task:
        The task file (task.toml); without one, the options describe a task of one sparse block.
    rows:
        Of the sparse block; by default the paper's 2^20, of which 1 % are selected.
    select:
        The rows a client selects.
    width:
        The weights of a row; by default 1.
    bits:
        Of a ring element: 32, 64 or 128; by default 64.
    selection:
        As a task's: adaptive, or fixed.
    updates:
        As a task's: retrieved, or any.
    alignment:
        As a task's: all, or union.
    security:
        As a task's: verified, or semi-honest.
    clients:
        How many take part in a round; by default 100, or as many as the task admits.
    rounds:
        How many rounds there are.
    union:
        The rows that all clients of a round select together, of the largest sparse block; by default the most,
        clients × select.
    dtype:
        The model's: f2, f4, f8, i1, …
    upload:
        A client's upload, in megabits per second.
    download:
        Its download, likewise.
    link:
        The servers' link, each way, likewise.
    latency:
        Of that link, one way, in milliseconds.
    cores:
        That each server computes on.
    calibrate:
        Measure this machine's speeds (about a second) instead of taking typical ones.
    paper:
        Also compute the paper's table of bytes and its rates, beside ours.
    plot:
        Draw the upload over k/m into this file (.svg, .pdf, .png); needs the extra `plot`.
    """
    from parties.commands.plan.plan import typical
    from parties.commands.plan.run import question_from, run_plan

    report = Report("plan", form)
    described = {
        "rows": rows,
        "select": select,
        "width": width,
        "bits": bits,
        "selection": selection,
        "updates": updates,
        "alignment": alignment,
        "security": security,
    }

    async def work() -> None:
        given = {field: value for field, value in described.items() if value is not None}
        question = question_from(task, given, clients=clients, rounds=rounds, union=union, dtype=dtype)
        assumptions = typical(upload, download, link, latency, cores)
        run_plan(question, assumptions, calibrate=calibrate, paper=paper, plot=plot, report=report)

    return run(report, work)
