"""`fsl-async demo`: learn from the manual's text on two servers, and show what it cost and that it is exact.

In memory all parties share this process; over TCP S0, S1 and every client are processes of their own on this machine
(see `parties.demo.processes`). Either way the outcome is compared, element by element in the ring, with the same
training in the clear; a single differing bit is a failure.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import trio
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fsl_async.errors import FslError, MisuseError
from fsl_async.geometry import geometry_of
from fsl_async.public_part import Layout
from fsl_async.ring import Ring
from fsl_async.task import Task
from parties.client import Client
from parties.cluster import simulate
from parties.compute import InlineLane
from parties.demo.corpus import Corpus, load
from parties.demo.learner import (
    BLOCKS,
    Learner,
    Model,
    accuracy,
    initial_model,
    majority,
    telling_words,
    train_in_the_clear,
)
from parties.report import Report

__all__ = ["Summary", "demo_task", "run_demo", "take_part"]

RING = Ring(64, fraction_bits=24)
MOST_CLIENTS = 64
PHASES = ("retrieve", "train", "submit", "aggregate")


def demo_task(clients: int) -> Task:
    """The demo's task for so many clients."""
    return Task(name="manual", blocks=BLOCKS, ring=RING, min_clients=2, max_clients=clients)


@dataclass
class Summary:
    """What a run of the demo has measured.

    Attributes:
        model: the final model.
        seconds: by phase, summed over all rounds; of one client for its phases.
        sent: bytes that one client sent, all rounds and handshakes together.
        received: bytes that it received.
        transcript: the digest of all messages; empty over TCP.
    """

    model: Model
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    sent: int = 0
    received: int = 0
    transcript: str = ""

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        started = time.perf_counter()
        yield
        self.seconds[phase] += time.perf_counter() - started


async def run_demo(*, clients: int, rounds: int, seed: int, transport: str, report: Report) -> None:
    """Run the demo and report.

    Raises:
        MisuseError: a number is out of range.
        FslError: the private result differs from the one in the clear.
    """
    if not 2 <= clients <= MOST_CLIENTS or rounds < 1:
        raise MisuseError(f"2 to {MOST_CLIENTS} clients and at least 1 round expected, got {clients} and {rounds}")
    corpus = load(clients, seed)
    with _progress(report) as progress:
        if transport == "memory":
            summary = await _in_memory(corpus, clients, rounds, seed, progress)
        elif transport == "tcp":
            from parties.demo.processes import over_tcp

            summary = await over_tcp(clients, rounds, seed, progress)
        else:
            raise MisuseError(f"transport: memory or tcp expected, got {transport!r}")
    clear = _in_the_clear(corpus, clients, rounds)
    result = _result(corpus, clients, rounds, seed, transport, summary, clear)
    report.result(_text(result), result)
    if not result["exact"]:
        raise FslError("the private model differs from the one trained in the clear: this must never happen")


async def take_part(client: Client, learner: Learner, round_number: int, summary: Summary) -> None:
    """One client's part in one round: retrieve the rows of its words, learn from its text, submit what it learnt."""
    words, priors = BLOCKS
    rows = learner.wanted_rows(round_number)
    with summary.timed("retrieve"):
        found = await client.retrieve({words.name: rows, priors.name: ...})
    kept = ~np.isin(rows, client.deferred.get(words.name, []))
    with summary.timed("train"):
        deltas, prior_deltas = learner.train(round_number, rows[kept], found[words.name][kept], found[priors.name])
    with summary.timed("submit"):
        await client.submit({words.name: (rows[kept], deltas), priors.name: prior_deltas})


async def _in_memory(corpus: Corpus, clients: int, rounds: int, seed: int, progress: Progress) -> Summary:
    summary = Summary(initial_model())
    bar = progress.add_task("rounds", total=rounds)
    async with (
        simulate(demo_task(clients), initial_model(), seed, InlineLane()) as network,
        trio.open_nursery() as nursery,
    ):
        parties = [await _opened(network.client(f"client-{number:02}")) for number in range(clients)]
        learners = [Learner(shard, clients) for shard in corpus.shards]
        for round_number in range(rounds):
            for client, learner in zip(parties, learners, strict=True):
                await take_part(client, learner, round_number, summary)
            with summary.timed("aggregate"):
                await network.finish_round()
            progress.advance(bar)
        summary.model = network.model
        summary.sent, summary.received = parties[0].bytes_sent, parties[0].bytes_received
        summary.transcript = network.transcript_digest()
        for client in parties:
            await client.aclose()
        nursery.cancel_scope.cancel()
    for phase in PHASES[:3]:
        summary.seconds[phase] /= clients
    return summary


async def _opened(client: Client) -> Client:
    await client.open()
    return client


def _in_the_clear(corpus: Corpus, clients: int, rounds: int) -> Model:
    """The same training without protection, in the same ring."""
    task = demo_task(clients)

    def encode(values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        return RING.encode(values, task.largest_integer)

    learners = [Learner(shard, clients) for shard in corpus.shards]
    *_, model = train_in_the_clear(learners, rounds, encode, RING.decode)
    return model


def _result(
    corpus: Corpus, clients: int, rounds: int, seed: int, transport: str, summary: Summary, clear: Model
) -> dict[str, Any]:
    task = demo_task(clients)
    words, _ = BLOCKS
    untrained = initial_model()
    trivial_up = sum(block.weights for block in task.blocks) * RING.element_bytes + 16
    trivial_down = sum(array.nbytes for array in untrained.values())
    return {
        "clients": clients,
        "rounds": rounds,
        "seed": seed,
        "transport": transport,
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
        "tree_bytes": Layout.retrieval(task).size,
        "bins": geometry_of(task, words).bins.trees,
        "seconds": {phase: round(value, 3) for phase, value in summary.seconds.items()},
        "transcript": summary.transcript,
    }


def _text(result: dict[str, Any]) -> str:
    def ratio(ours: int, trivial: int) -> str:
        return f"{ours:>10,} bytes, {trivial / ours:.1f} × less than the {trivial:,} of the trivial protocol"

    words = "\n".join(f"  {chapter:20} {' '.join(best)}" for chapter, best in result["telling_words"].items())
    seconds = ", ".join(f"{phase} {value:.2f}" for phase, value in result["seconds"].items())
    share = result["select"] / result["rows"]
    return f"""
Which chapter of the Python manual is a paragraph from? {result["clients"]} clients, {result["rounds"]} rounds,
{result["transport"]}. Each client used at most {result["select"]} of {result["rows"]:,} word rows a round (k/m =
{share:.1%}); no server learnt which.

  right on {result["held_out"]} held-out excerpts   before {result["accuracy_before"]:.1%}   after
  {result["accuracy_after"]:.1%}   (always the commonest chapter: {result["accuracy_majority"]:.1%}) equal to training
  in the clear          {"yes, bit for bit" if result["exact"] else "NO"} upload per client and round
  {ratio(result["bytes_up_per_client_and_round"], result["trivial_bytes_up"])} download per client and round
  {ratio(result["bytes_down_per_client_and_round"], result["trivial_bytes_down"])} seconds over all rounds
  {seconds} (retrieve, train, submit: of one client)

What the model learnt, the words that speak most for each chapter:
{words}
"""


@contextmanager
def _progress(report: Report) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=report.console, transient=True) as progress:
        yield progress
