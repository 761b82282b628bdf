"""`bench`: how fast this machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from parties.commands.running import FormatFlag, run_plainly

__all__ = ["bench"]


def bench(
    suite: Literal[
        "kernels",
        "psr",
        "generate",
        "round",
        "din",
        "growth",
        "actors",
        "retrieval",
        "bounds",
        "contributors",
        "sketch",
        "all",
    ],
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
    """Measure the speed of this machine, and compare it with what the hardware could do at most.

    Parameters
    ----------
    suite:
        What to measure: a server's evaluation of keys (kernels), retrieval (psr), a client's generation of keys
        (generate), a whole round, the paper's recommendation network (din), how costs grow with the size (growth), a
        round of a thousand actors in one process against the same in bare trio (actors), authenticated answers beside
        plain ones (retrieval), a bounded update beside the same without a bound, and noise (bounds), the paper's
        sketch beside verified trees (sketch), or all of it but actors, which takes about five minutes.
    rows:
        The number of rows, m. If any size is given, one case of these sizes replaces the suite's own cases.
    select:
        The number of rows that a client selects, k; by default the same fraction as in the suite's first case.
    width:
        The number of weights in a row.
    bits:
        The bits of a ring element.
    clients:
        The number of clients in a round.
    threads:
        The number of threads; by default 1, and in a round one for each core.
    isa:
        The instruction set: vaes512, vaes256, aesni, armv8 or portable; by default the fastest that this machine has.
    write:
        With `all`: the folder to write a README.md with all figures into, and plots.
    """
    from parties.commands.bench.results import BenchReport
    from parties.commands.bench.run import run_bench
    from parties.commands.bench.workload import Options

    report = BenchReport(f"bench {suite}", form)
    options = Options(rows, select, width, bits, clients, threads)
    return run_plainly(report, lambda: run_bench(suite, options, isa, write, report))
