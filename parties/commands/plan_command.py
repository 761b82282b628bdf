"""`plan`: what a task will cost."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fsl_async.errors import MisuseError
from parties.commands.report import Report, reported


@reported("plan")
def plan(
    report: Report,
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
    threads: int | None = None,
    memory: float | None = None,
    disk: float | None = None,
    network: float | None = None,
    workers: str | None = None,
    worker_network: float | None = None,
    hourly: float | None = None,
    constants: Path | None = None,
) -> None:
    """Compute what a task will cost, whether that pays, and what to change; nothing is run.

    With --threads, --memory, --disk, --network, --workers or --constants it plans a server's host
    instead: what it is capable of, what it outgrows first, and what would move that.

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
    threads:
        The processors of a server's host; by default as many as --cores.
    memory:
        The memory of a server's host in GiB, to be compared with what is needed.
    disk:
        The room on a server's disk in GiB, to be compared with what is needed.
    network:
        The bandwidth from the clients to a server in megabits per second; by default 10,000.
    workers:
        Workers of a cluster that evaluate in the server's place, each on a host of its own: how many, or how many and
        the threads of each, such as 4,16; without the second, as many threads as the server's host has.
    worker_network:
        The bandwidth of each worker's host, and of the server to them, in megabits per second; by default 10,000.
    hourly:
        With --workers, a number of clients an hour: says how many such workers they need.
    constants:
        The file in which `bench --calibrate` has stored what it measured; by default constants of another
        machine.
    """
    from fsl_async.costs.scaling import ANOTHER_MACHINE, HostCapacity, Workers
    from parties.commands.plan.calibration import load_constants, measure
    from parties.commands.plan.plan import typical
    from parties.commands.plan.run import plan_alone, question_from, report_server, run_plan, task_from
    from parties.commands.plan.server_plan import plan_server, read_workers
    from parties.settings.writing import load_task

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

    asked = (threads, memory, disk, network, workers, worker_network, hourly, constants)
    of_a_server = any(option is not None for option in asked)

    def crew() -> Workers | None:
        if workers is None:
            if worker_network is not None:
                raise MisuseError("worker-network: the plan has no workers; add --workers N,THREADS")
            return None
        network = 1e6 * (10_000 if worker_network is None else worker_network)
        return read_workers(workers, cores if threads is None else threads, network)

    warnings.filterwarnings("ignore", "task: noise leaves nothing")  # the verdict says it
    given = {field: value for field, value in described.items() if value is not None}
    if of_a_server:
        if paper or calibrate or plot is not None:
            raise MisuseError(
                "a server's plan has no --paper and no --plot; `fsl-async bench --calibrate FILE` measures for it"
            )
        told = task_from(task, given, clients)
        counted = clients or max(2, told.quorum, min(100, told.max_clients))
        planned = plan_server(
            told,
            clients=counted,
            host=HostCapacity(
                threads=cores if threads is None else threads,
                network=1e6 * (10_000 if network is None else network),
                link=1e6 * link,
                workers=crew(),
            ),
            constants=ANOTHER_MACHINE if constants is None else load_constants(constants),
            dtype=dtype,
            memory=2**30 * (memory or 0),
            disk=2**30 * (disk or 0),
            hourly=hourly,
        )
        report_server(planned, report)
        return
    if task is not None and (alone := load_task(task)).protocol != "ssa":
        left = [f"--{field}" for field in given] + ["--paper"] * paper + ["--plot"] * (plot is not None)
        if left:
            raise MisuseError(f"{task} has protocol = {alone.protocol!r} and says all there is: leave out {left[0]}")
        assumptions = typical(upload, download, link, latency, cores)
        if calibrate:
            assumptions = replace(assumptions, speeds=measure())
        plan_alone(task, alone, clients=clients or 0, union=union, dtype=dtype, assumptions=assumptions, report=report)
        return
    question = question_from(task, given, clients=clients, rounds=rounds, union=union, dtype=dtype)
    assumptions = typical(upload, download, link, latency, cores)
    run_plan(question, assumptions, calibrate=calibrate, paper=paper, plot=plot, report=report)
