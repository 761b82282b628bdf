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
        "server",
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
    only: list[str] | None = None,
    calibrate: Path | None = None,
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
        sketch beside verified trees (sketch), what a server and its doors take for each client (server), or all of it
        but actors and server, which takes about five minutes.
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
    only:
        With `server`: this figure alone; may be given several times. Without it, all but `large`, which takes memory
        of many gigabytes.
    calibrate:
        With `server`: measure the constants of `plan --doors` instead, in about a minute, and store them in this file.
    """
    from parties.commands.bench.results import BenchReport
    from parties.commands.bench.run import run_bench
    from parties.commands.bench.workload import Options

    report = BenchReport(f"bench {suite}", form)
    if suite == "server":
        from parties.commands.bench.server.run import run_server

        given = [value for value in (rows, select, width, bits, clients, threads, write) if value is not None]
        return run_plainly(report, lambda: run_server(tuple(only or ()), calibrate, bool(given or isa), report))
    options = Options(rows, select, width, bits, clients, threads)
    beside = "--only" if only else "--calibrate" if calibrate else ""
    return run_plainly(report, lambda: run_bench(suite, options, isa, write, report, beside=beside))
