"""`bench`: what this machine does for a task, how fast it is, and how fast other libraries are on it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cyclopts import App, CycloptsError

from fsl_async.errors import MisuseError
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["bench"]

bench = App(name="bench", help="Say what this machine does for a task, and measure its speed.")


@bench.default
def of_this_machine(
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
        "cluster",
        "all",
    ]
    | None = None,
    *,
    task: Path | None = None,
    constants: Path | None = None,
    network: float | None = None,
    link: float | None = None,
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
    targets: bool = False,
    form: FormatFlag = "text",
) -> int:
    """Say what this machine does for a task, and measure its speed, compared with what the hardware could do at most.

    With --task the first thing said is how many clients this host serves in an hour for that task, and what limits it
    first. Without a suite, nothing else is measured.

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
    task:
        The task file (task.toml) of which is said how many clients this host serves in an hour.
    constants:
        With `--task`: the file in which `bench server --calibrate` has stored what it measured on this machine; by
        default it is measured now, in about two minutes.
    network:
        With `--task`: the bandwidth from the clients to a server in megabits per second; by default 10,000.
    link:
        With `--task`: the bandwidth between the servers, each way, in megabits per second; by default 1,000.
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
        With `server`: measure the constants of `plan --constants` instead, in about two minutes, and store them in this
        file.
    targets:
        For developers of the kernels: each figure's targets, and whether they are met.
    """
    if suite is None and task is None:
        raise CycloptsError(
            msg="name a suite to measure, or give --task with your task file to hear what this host does for it",
            command_chain=("bench",),
        )
    from parties.commands.bench.results import BenchReport
    from parties.commands.bench.run import run_bench
    from parties.commands.bench.workload import Options

    options = Options(rows, select, width, bits, clients, threads)
    report = BenchReport(f"bench {suite}" if suite else "bench", form, targets=targets)
    of_a_suite = options.given or threads is not None or bool(isa) or write is not None
    of_a_task = {"constants": constants, "network": network, "link": link}

    def work() -> None:
        if task is not None:
            from parties.commands.bench.host import LINK, NETWORK, Asked, say_what_this_host_does

            if suite is None and (of_a_suite or only):
                raise MisuseError("--task: the file says all sizes; name the suite that the other options are for")
            if calibrate is not None:
                raise MisuseError("--calibrate: measure the constants first, then give --task and --constants")
            asked = Asked(
                task,
                constants,
                NETWORK if network is None else network,
                LINK if link is None else link,
            )
            say_what_this_host_does(asked, report, alone=suite is None)
        elif strange := [name for name, value in of_a_task.items() if value is not None]:
            raise MisuseError(f"--{strange[0]}: expected with --task")
        if suite == "server":
            from parties.commands.bench.server.run import run_server

            run_server(tuple(only or ()), calibrate, of_a_suite, report)
        elif suite is not None:
            beside = "--only" if only else "--calibrate" if calibrate else ""
            run_bench(suite, options, isa, write, report, beside=beside)

    return run_plainly(report, work)


@bench.command(name="peers")
def beside_peers(
    *,
    peer: list[str] | None = None,
    alone: bool = False,
    turns: int = 7,
    idle: float = 0.1,
    patience: float = 300,
    form: FormatFlag = "text",
) -> int:
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
        told = "--alone is for a run without --peer" if peer else (
            "build a library's driver as docs/benchmarks/peers/README.md says and give it as --peer NAME=PROGRAM, or "
            "measure this library by itself with --alone"
        )  # fmt: skip
        raise CycloptsError(msg=told, command_chain=("bench", "peers"))
    from parties.commands.bench.peers.program import programs_of
    from parties.commands.bench.peers.run import Conditions, compare
    from parties.commands.report import Report

    report = Report("bench peers", form)
    return run_plainly(report, lambda: compare(programs_of(peer or []), Conditions(turns, idle, patience), report))
