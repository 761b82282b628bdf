"""`plan`: what a task will cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from fsl_async.errors import MisuseError
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
    """Compute what a task will cost, whether that pays, and what to change; nothing is run.

    Parameters
    ----------
    task:
        The task file (task.toml); without one, the options describe a task of one sparse block.
    rows:
        The rows of the sparse block; by default the paper's 2^20, of which 1 % are selected.
    select:
        The number of rows that a client selects.
    width:
        The number of weights in a row; by default 1.
    bits:
        The bits of a ring element: 32, 64 or 128; by default 64.
    selection:
        The task's `selection`: adaptive or fixed.
    updates:
        The task's `updates`: retrieved or any.
    alignment:
        The task's `alignment`: all or union.
    security:
        The task's `security`: verified or semi-honest.
    clients:
        The number of clients in a round; by default 100, or the task's max_clients if that is less.
    rounds:
        The number of rounds.
    union:
        The number of rows that all clients of a round select together, of the largest sparse block; by default
        clients × select, the most there can be.
    dtype:
        The data type of the model: f2, f4, f8, i1, …
    upload:
        A client's upload bandwidth in megabits per second.
    download:
        A client's download bandwidth in megabits per second.
    link:
        The bandwidth between the servers, each way, in megabits per second.
    latency:
        The latency between the servers, one way, in milliseconds.
    cores:
        The number of cores of each server.
    calibrate:
        Measure the speed of this machine (about a second) instead of assuming typical speeds.
    paper:
        Also compute the paper's table of bytes and rates, beside ours.
    plot:
        Plot the upload against k/m into this file (.svg, .pdf or .png); needs the extra `plot`.
    """
    from parties.commands.plan.alone import plan_alone
    from parties.commands.plan.calibration import measure
    from parties.commands.plan.plan import typical
    from parties.commands.plan.run import question_from, read_task, run_plan

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
        if task is not None and (alone := read_task(task)).protocol != "ssa":
            left = [f"--{field}" for field in given] + ["--paper"] * paper + ["--plot"] * (plot is not None)
            if left:
                raise MisuseError(
                    f"{task} has protocol = {alone.protocol!r} and says all there is: leave out {left[0]}"
                )
            assumptions = typical(upload, download, link, latency, cores)
            if calibrate:
                assumptions = replace(assumptions, speeds=measure())
            plan_alone(
                task, alone, clients=clients or 0, union=union, dtype=dtype, assumptions=assumptions, report=report
            )
            return
        question = question_from(task, given, clients=clients, rounds=rounds, union=union, dtype=dtype)
        assumptions = typical(upload, download, link, latency, cores)
        run_plan(question, assumptions, calibrate=calibrate, paper=paper, plot=plot, report=report)

    return run(report, work)
