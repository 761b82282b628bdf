"""`bench`: how fast this machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from parties.commands.running import FormatFlag, run_plainly

__all__ = ["bench"]


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
