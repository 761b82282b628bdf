"""`demo`, `plan` and `bench`: what the system does, what a task will cost, how fast this machine is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run, run_plainly

__all__ = ["bench", "demo", "plan"]


def demo(
    *,
    clients: int = 8,
    rounds: int = 8,
    seed: int = 7,
    transport: Annotated[
        Literal["memory", "tcp"], Parameter(help="memory: one process; tcp: S0, S1 and every client a process.")
    ] = "memory",
    form: FormatFlag = "text",
) -> int:
    """Learn from real text on two servers and several clients, and compare with learning in the clear.

    Parameters
    ----------
    clients:
        How many clients, 2 to 64.
    rounds:
        How many rounds.
    seed:
        Decides the division of the text, and in memory all randomness.
    """
    from parties.commands.demo.run import run_demo

    report = Report("demo", form)
    return run(report, partial(run_demo, clients=clients, rounds=rounds, seed=seed, transport=transport, report=report))


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


def bench(
    suite: Literal["kernels", "psr", "generate", "round", "din", "growth", "all"],
    *,
    rows: int | None = None,
    select: int | None = None,
    width: int | None = None,
    bits: Literal[32, 64, 128] | None = None,
    clients: int | None = None,
    threads: int | None = None,
    isa: str = "",
    write: Path | None = None,
    form: FormatFlag = "text",
) -> int:
    """Measure this machine, and compare it with what it could do at most.

    Parameters
    ----------
    suite:
        What to measure: a server's evaluation, retrieval, a client's generation, a whole round, the paper's
        recommendation network, how costs grow; or all of it in about four minutes.
    rows:
        m. Sizes that are given replace the suite's own set of cases by one.
    select:
        k; by default the same part of the rows as in the suite's first case.
    width:
        Weights in a row.
    bits:
        Of a ring element.
    clients:
        In a round.
    threads:
        How many to compute with, bounds included; by default 1, and in a round as many as there are cores.
    isa:
        The instruction set: vaes512, vaes256, aesni, armv8 or portable; by default the fastest one here.
    write:
        With `all`: the folder that gets a README.md with all figures, and plots.
    """
    from parties.commands.bench import BenchReport, Options, run_bench

    report = BenchReport(f"bench {suite}", form)
    options = Options(rows, select, width, bits, clients, threads)
    return run_plainly(report, lambda: run_bench(suite, options, isa, write, report))
