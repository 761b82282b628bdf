"""`python -m tests.bench`: how fast the parts are, compared with what this machine could do at most.

With `peers` as the suite, evaluation of trees beside other libraries.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from cyclopts import App

from fsl_async.errors import MisuseError
from parties.commands.report import FormatFlag, Report, reported, run
from tests.bench.peers.program import programs_of
from tests.bench.peers.run import Conditions, compare
from tests.bench.results import BenchReport
from tests.bench.run import Suite, run_bench
from tests.bench.server.run import run_server
from tests.bench.workload import Options

app = App(name="python -m tests.bench", help_format="plaintext", result_action="return_value")


@app.default
def of_this_machine(
    suite: Suite | Literal["server"],
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
    beside: Path | None = None,
    targets: bool = False,
    form: FormatFlag = "text",
) -> int:
    """Measure the speed of this machine, compared with what the hardware could do at most.

    Parameters
    ----------
    suite:
        What to measure: a server's evaluation of keys (kernels), retrieval (psr), a client's generation of keys
        (generate), a whole round, the paper's recommendation network (din), how costs grow with the size (growth), a
        round of a thousand actors in one process against the same in bare trio (actors), authenticated answers beside
        plain ones (retrieval), a bounded update beside the same without a bound, and noise (bounds), the paper's
        sketch beside verified trees (sketch), what a server takes for each client (server), what workers
        of a cluster take beside the server's own process (cluster, with the extra `dask`), or all of it but actors,
        server and cluster, which takes about five minutes.
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
        The instruction set: vaes512, vaes256, aesni, armv8 or plain; by default the fastest that this machine has.
    write:
        With `all`: the folder to write a README.md with all figures into, and plots.
    only:
        With `server`: this figure alone; may be given several times. Without it, all but `large` and `budget`, which
        take memory of many gigabytes, `rounds`, which takes minutes, and `submission`.
    beside:
        With `--only submission`: the Python of another version of this software, which takes turns with this one.
    targets:
        Each figure's targets, and whether they are met.
    """
    options = Options(rows, select, width, bits, clients, threads)
    report = BenchReport(f"bench {suite}", form, targets=targets)

    def work() -> None:
        if suite == "server":
            sized = options.given or threads is not None or bool(isa or write)
            run_server(tuple(only or ()), report, sized=sized, beside=beside)
        else:
            run_bench(suite, options, isa, write, report, beside="--only" if only else "--beside" if beside else "")

    return run(report, work)


@app.command(name="peers")
@reported("bench peers")
def beside_peers(
    report: Report,
    *,
    peer: list[str] | None = None,
    alone: bool = False,
    turns: int = 7,
    idle: float = 0.1,
    patience: float = 300,
) -> None:
    """Measure evaluation of trees beside other libraries, in turns, with programs that you have built with them.

    The folder docs/benchmarks/peers of the sources has a driver for each library, and says how to build it.

    Parameters
    ----------
    peer:
        NAME=PROGRAM: a library's name, and the driver that was built with it; may be given several times.
    alone:
        Measure this library alone.
    turns:
        How often each library comes.
    idle:
        How many processors others may take when a turn begins; until then it is waited.
    patience:
        The seconds for which a program, or an idle machine, is waited for.
    """
    if bool(peer) == alone:
        raise MisuseError(
            "--alone is for a run without --peer"
            if peer
            else "build a library's driver as docs/benchmarks/peers/README.md says and give it as --peer "
            "NAME=PROGRAM, or measure this library by itself with --alone"
        )
    compare(programs_of(peer or []), Conditions(turns, idle, patience), report)


if __name__ == "__main__":
    sys.exit(int(app() or 0))
