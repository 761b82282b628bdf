"""A round of large submissions against their evaluation alone: `python -m tests.system.soak.large_round --clients 100`.

Two processes evaluate as many submissions as the round has, each with all threads, as two servers that share this
machine do: the pure evaluation time. And rounds: two servers, and clients whose submissions are made before the clock
starts; it runs from the moment they are let go until the round is done on both servers, and includes what the clients'
side of the connections costs the same cores. The first round does not count: in it a server loads its kernels, as it
does once in its life. Between rounds the servers rest, as with most schedules: their stores overwrite what the last one
left. With `--rest 0` that falls into the next.

A machine's speed wanders, the more so the more others share it. So the evaluation is measured before the rounds and
after them, and the mean of both compared with the median of the rounds. On a machine with other work both grow, the
rounds more; the ratio of the processors' seconds does not, and tells where the round's own work is.
"""

import argparse
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio
from rich.table import Table

from fsl_async import Ring, Sparse, Task
from fsl_async.costs.scaling import Constants, HostCapacity, capacity, load_of
from parties.commands.bench.calibrating import calibrated
from parties.commands.bench.machine import cores
from parties.commands.plan.calibration import load_constants

from .children import Child, python_module
from .crowd import MIB
from .one_round import Crowd, Measured, measure
from .site import SERVERS
from .telling import console, shown, tell

ASKED = 1.8
"""The whole round may take so many times the pure evaluation."""

LOOPBACK = 20e9
"""Bits in a second between processes of one machine."""


async def pure_evaluation(folder: Path, rows: int, select: int, bits: int, clients: int) -> dict[str, float]:
    """Seconds that two servers take side by side to evaluate, and to fold; and those of the processors, of both."""
    told: list[dict[str, float]] = []
    ready = [trio.Event(), trio.Event()]

    def heard(index: int, line: dict[str, Any]) -> None:
        if "ready" in line:
            ready[index].set()
        else:
            told.append(line)

    async with trio.open_nursery() as nursery:
        children = []
        for index in (0, 1):
            command = python_module("tests.system.soak.evaluation_process", index, rows, select, bits, clients)
            children.append(Child(SERVERS[index], command, folder / f"evaluation-{index}.log", partial(heard, index)))
            nursery.start_soon(children[index].run_well)
        for event in ready:
            await event.wait()
        for child in children:
            child.send(signal.SIGUSR1)
    slower = {name: max(line[name] for line in told) for name in ("evaluated", "folded")}
    return {**slower, "processor": sum(line["processor"] for line in told)}


def large_task(clients: int, rows: int, select: int, bits: int) -> Task:
    """One sparse block, verified."""
    ring = Ring(bits, fraction_bits=8)
    return Task(
        name="large", blocks=(Sparse("items", rows=rows, select=select),), ring=ring, min_clients=2, max_clients=clients
    )


def predicted(options: argparse.Namespace, task: Task, constants: Constants, clients: float) -> dict[str, Any]:
    """What the model says: seconds of a round in which two servers share this machine with their clients.

    Args:
        options: the command's.
        task: what is learnt.
        constants: what this machine takes.
        clients: processor seconds of all clients.
    """
    each = clients / options.clients
    host = HostCapacity(cores(), network=LOOPBACK, link=LOOPBACK, servers=2, clients=each)
    limit = capacity(load_of(task), host, constants, options.clients)
    return {
        "round_seconds": limit.round_seconds,
        "first_limit": limit.first.part,
        "processor_seconds": options.clients * (limit.stages[-1].work - each),
        "constants": constants.machine,
    }


def figures(alone: Sequence[dict[str, float]], rounds: Sequence[Measured]) -> dict[str, Any]:
    """What is reported: of the evaluations alone the mean, of the rounds but the first that of median length."""
    pure = {name: statistics.fmean(told[name] for told in alone) for name in alone[0]}
    took = [max(measured.done) for measured in rounds]
    measured = rounds[took.index(statistics.median_high(took[1:]))]
    return {
        "clients": len(measured.submit),
        "pure_evaluation_seconds": pure["evaluated"],
        "pure_fold_seconds": pure["folded"],
        "pure_processor_seconds": pure["processor"],
        "pure_evaluations": [told["evaluated"] for told in alone],
        "round_seconds": max(measured.done),
        "settled_seconds": max(measured.settled),
        "rounds": took,
        "processor_seconds": measured.processor,
        "ratio": max(measured.done) / pure["evaluated"],
        "processor_ratio": sum(spent for who, spent in measured.processor.items() if who.endswith("done"))
        / pure["processor"],
        "asked": ASKED,
        "last_receipt_seconds": max(measured.submit.values()),
        "bytes_up_per_client": max(measured.sent.values()),
        "said": measured.said,
        "seconds": measured.seconds,
        "peak_memory_mib": [memory / MIB for memory in measured.memory],
        "exact": True,
    }


async def run(folder: Path, options: argparse.Namespace, progress: Any) -> dict[str, Any]:
    """Measure both: the evaluation, the rounds, the evaluation."""
    evaluate = partial(pure_evaluation, folder, options.rows, options.select, options.bits, options.clients)
    before = await evaluate()
    task = large_task(options.clients, options.rows, options.select, options.bits)
    crowd = Crowd(options.clients, options.processes, options.rounds, options.seed, options.rest)
    rounds = await measure(folder, task, crowd, progress)
    told = figures([before, await evaluate()], rounds)
    clients = told["processor_seconds"]["clients, until done"]
    told["predicted"] = predicted(options, task, options.known, clients)
    told["predicted"]["off"] = told["predicted"]["round_seconds"] / told["round_seconds"] - 1
    return told


def main() -> int:
    """Run the command; the exit code tells whether the ratio is kept."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--rows", type=int, default=2**20)
    parser.add_argument("--select", type=int, default=10_486)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--processes", type=int, default=2, help="in how many processes the clients are")
    parser.add_argument("--rounds", type=int, default=6, help="the first one does not count")
    parser.add_argument("--rest", type=float, default=15.0, help="seconds between the rounds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--constants", type=Path, help="a file of `fsl-async bench --calibrate`")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: the first one does not count, so there must be 2 at least")
    options.known = load_constants(options.constants) if options.constants else calibrated(console().print)
    with (
        tempfile.TemporaryDirectory(prefix="fsl-async-large-") as folder,
        shown(options.clients * options.rounds) as progress,
    ):
        told = trio.run(run, Path(folder), options, progress)
    tell(told, _table(told, options))
    return 0 if told["ratio"] <= ASKED else 1


def _table(told: dict[str, Any], options: argparse.Namespace) -> Table:
    sizes = f"m = {options.rows:,}, k = {options.select:,}, l = {options.bits}"
    title = f"{options.clients} clients, {sizes}, seed {options.seed}"
    table = Table("what", *SERVERS, title=title)
    table.add_row("upload of one client", f"{told['bytes_up_per_client']:,} bytes", "")
    for kind in dict.fromkeys([*told["said"][0], *told["said"][1]]):
        moments = [said.get(kind) for said in told["said"]]
        table.add_row(f"first {kind} sent after", *("" if at is None else f"{at:.2f} s" for at in moments))
    table.add_row("last client has both receipts after", f"{told['last_receipt_seconds']:.2f} s", "")
    table.add_section()
    for kind in sorted({*told["seconds"][0], *told["seconds"][1]}):
        table.add_row(f"time in {kind}", *(f"{seconds.get(kind, 0.0):.2f} s" for seconds in told["seconds"]))
    table.add_row("peak memory", *(f"{memory:,.0f} MiB" for memory in told["peak_memory_mib"]))
    table.add_section()
    alone = " and ".join(f"{seconds:.2f}" for seconds in told["pure_evaluations"])
    rounds = ", ".join(f"{seconds:.2f}" for seconds in told["rounds"][1:])
    table.add_row("pure evaluation, both servers at once", f"{told['pure_evaluation_seconds']:.2f} s", f"of {alone}")
    table.add_row("a round, first submission let go → DONE", f"{told['round_seconds']:.2f} s", f"of {rounds}")
    table.add_row("→ settled: durable, shares erased", f"{told['settled_seconds']:.2f} s", "")
    table.add_row("the first round of a server's life", f"{told['rounds'][0]:.2f} s", "does not count")
    table.add_row("ratio", f"{told['ratio']:.2f}", f"at most {ASKED} asked")
    said = told["predicted"]
    off = f"{100 * said['off']:+.0f} %, by the {said['first_limit']}"
    table.add_row("the scaling model predicts", f"{said['round_seconds']:.2f} s", off)
    table.add_section()
    table.add_row("processors: pure evaluation", f"{told['pure_processor_seconds']:.2f} s", "both servers")
    for who, seconds in told["processor_seconds"].items():
        table.add_row(f"processors: the round, {who}", f"{seconds:.2f} s", "")
    table.add_row("the model, without the round's end", f"{said['processor_seconds']:.2f} s", "both servers")
    table.add_row("ratio of processors' seconds, until done", f"{told['processor_ratio']:.2f}", "")
    return table


if __name__ == "__main__":
    sys.exit(main())
