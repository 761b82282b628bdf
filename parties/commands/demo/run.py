"""Runs the demo: learns from the manual's text on two servers, and shows what it cost and that it is exact.

In memory, all parties share this process; over TCP, S0, S1 and every client are processes of their own on this machine
(see `parties.commands.demo.processes`). In both cases the result is compared, element by element in the ring, with the
same training in the clear; a single differing bit is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import trio
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fsl_async.bin_count import planned
from fsl_async.errors import FslError, MisuseError
from fsl_async.geometry import geometry_of
from fsl_async.wire.public_part import Layout
from parties.commands.demo.client_cost import client_cost
from parties.commands.demo.corpus import Corpus, Excerpt, load
from parties.commands.demo.learner import (
    BLOCKS,
    Learner,
    Model,
    accuracy,
    initial_model,
    majority,
    telling_words,
)
from parties.commands.demo.taking_part import PHASES, RING, Summary, demo_task, learnt, wanted
from parties.commands.report import Report
from parties.compiling import Rehearsal, rehearsed
from parties.simulation.experiment import Client, run_experiment
from parties.simulation.history import History, Record

MOST_CLIENTS = 64


async def run_demo(
    *,
    clients: int,
    rounds: int,
    seed: int,
    transport: Literal["memory", "tcp", "unix"],
    report: Report,
    compute: Literal["threads", "dask"] = "threads",
) -> None:
    """Run the demo and report.

    Raises:
        MisuseError: a number is out of range.
        FslError: the private result differs from the one in the clear, or a client retrieved implausible weights.
    """
    if not 2 <= clients <= MOST_CLIENTS or rounds < 1:
        raise MisuseError(f"2 to {MOST_CLIENTS} clients and at least 1 round expected, got {clients} and {rounds}")
    if compute == "dask" and transport != "tcp":
        raise MisuseError(
            "a cluster's workers are processes, which are reached over TCP: --compute dask needs --transport tcp"
        )
    corpus = load(clients, seed)
    if transport == "memory":
        run = partial(_in_memory, corpus, rounds, seed, report)
        with rehearsed(lambda: [demo_task(clients)]) as rehearsal:
            summary = await trio.to_thread.run_sync(run, rehearsal, abandon_on_cancel=True)
    else:
        from parties.commands.demo.processes import in_processes  # which takes 0.1 s, and needs what serves

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=report.console, transient=True) as progress:
            summary = await in_processes(clients, rounds, seed, progress, transport, compute)
    if summary.doubts:
        raise FslError(f"{'; '.join(summary.doubts)}: zeros were submitted instead of updates")
    clear = learn(corpus, rounds, clear=True).model
    result = _result(corpus, clients, rounds, seed, (transport, compute), summary, clear)
    if not result["exact"]:
        raise FslError("the private model differs from the one trained in the clear: this must never happen")
    result["client"] = await trio.to_thread.run_sync(client_cost)
    report.result(_text(result), result)


def learn(
    corpus: Corpus,
    rounds: int,
    seed: int = 0,
    *,
    clear: bool = False,
    on_round: Callable[[Record], None] | None = None,
) -> History:
    """All rounds in this process, through both servers or without any protection, in the same ring."""
    clients = len(corpus.shards)

    def client(shard: Sequence[Excerpt]) -> Client:
        learner = Learner(shard, clients)
        return (
            lambda turn: wanted(learner, turn.number - 1),
            lambda found, turn: learnt(learner, turn.number - 1, found),
        )

    members = {f"client-{number:02}": client(shard) for number, shard in enumerate(corpus.shards)}
    return run_experiment(
        demo_task(clients), initial_model(), members, rounds, seed=seed, clear=clear, on_round=on_round
    )


def _in_memory(corpus: Corpus, rounds: int, seed: int, report: Report, rehearsal: Rehearsal | None) -> Summary:
    def tell(record: Record) -> None:
        nonlocal rehearsal
        report.progress(f"round {record['round']} of {rounds}: {record['counted']} clients counted")
        if rehearsal is not None and rehearsal.is_over:
            if why := rehearsal.change_lanes():
                report.progress(f"goes on without kernels: {why}")
            rehearsal = None

    history, clients = learn(corpus, rounds, seed, on_round=tell), len(corpus.shards)
    summary = Summary(history.model)
    for phase in PHASES:
        summary.seconds[phase] = sum(history.curve(f"seconds.{phase}")) / (1 if phase == "aggregate" else clients)
    summary.sent, summary.received = (int(sum(history.curve(f"bytes_{way}"))) // clients for way in ("up", "down"))
    summary.doubts = [f"{name}: {why}" for record in history.records for name, why in record["failed"].items()]
    return summary


def _result(
    corpus: Corpus, clients: int, rounds: int, seed: int, way: tuple[str, str], summary: Summary, clear: Model
) -> dict[str, Any]:
    task = demo_task(clients)
    transport, compute = way
    words, _ = BLOCKS
    untrained = initial_model()
    trivial_up = sum(block.weights for block in task.blocks) * RING.element_bytes + 16
    trivial_down = sum(array.nbytes for array in untrained.values())
    return {
        "clients": clients,
        "rounds": rounds,
        "seed": seed,
        "transport": transport,
        "compute": compute,
        "rows": words.rows,
        "width": words.width,
        "select": words.select,
        "accuracy_before": accuracy(untrained, corpus.held_out),
        "accuracy_after": accuracy(summary.model, corpus.held_out),
        "accuracy_majority": majority(corpus),
        "held_out": len(corpus.held_out),
        "exact": all(np.array_equal(summary.model[name], clear[name]) for name in clear),
        "telling_words": telling_words(summary.model, corpus, 5),
        "bytes_up_per_client_and_round": summary.sent // rounds,
        "bytes_down_per_client_and_round": summary.received // rounds,
        "trivial_bytes_up": trivial_up,
        "trivial_bytes_down": trivial_down,
        "tree_bytes": Layout.retrieval(planned(task)).size,
        "bins": geometry_of(planned(task), planned(task).sparse(0)).bins.trees,
        "seconds": {phase: round(value, 3) for phase, value in summary.seconds.items()},
    }


def _text(result: dict[str, Any]) -> str:
    def ratio(ours: int, trivial: int) -> str:
        return f"{ours:>10,} bytes, {trivial / ours:.1f} × less than the {trivial:,} of the trivial protocol"

    words = "\n".join(f"  {chapter:20} {' '.join(best)}" for chapter, best in result["telling_words"].items())
    seconds = ", ".join(f"{phase} {value:.2f}" for phase, value in result["seconds"].items())
    setting = f"{result['clients']} clients, {result['rounds']} rounds, {result['transport']}"
    if result["compute"] == "dask":
        setting += "; two workers of a cluster add up for S0"
    share = f"{result['select'] / result['rows']:.1%}"
    up = ratio(result["bytes_up_per_client_and_round"], result["trivial_bytes_up"])
    down = ratio(result["bytes_down_per_client_and_round"], result["trivial_bytes_down"])
    costs = result["client"]
    before, after, common = (f"{result[f'accuracy_{when}']:.1%}" for when in ("before", "after", "majority"))
    lines = [
        "",
        f"Which chapter of the Python manual is a paragraph from? {setting}.",
        f"Each client used at most {result['select']} of {result['rows']:,} word rows a round (k/m = {share}); "
        "no server learnt which ones.",
        "",
        f"  right on {result['held_out']} held-out excerpts   before {before}   after {after}",
        f"  (always the commonest chapter: {common})",
        "  equal to training in the clear      yes, bit for bit",
        f"  upload per client and round   {up}",
        f"  download per client and round {down}",
        f"  seconds over all rounds       {seconds}",
        "                                (retrieve, train, submit: of one client)",
        f"  a client costs                {costs['installed_megabytes']:.0f} MB of packages (without `server`), "
        f"{costs['first_call_seconds']:.1f} s of a processor",
        f"                                to its first retrieval, {costs['memory_megabytes']} MB of memory",
        "",
        "What the model learnt: the words that indicate each chapter most clearly",
        words,
    ]
    return "\n".join(lines)
