"""What verification costs: `python -m tests.system.security.cost` prints upload bytes and the ratio of evaluation
times.

Two ratios are measured, both on one thread, runs of the two kinds in turn, the median of the pairs: *same trees*, the
kernel with proofs over the kernel without, on equal trees; and *tasks*, a whole submission added by a server of a
verified task over one of a semi-honest task, whose leaves may cover several rows.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
from rich.console import Console
from rich.table import Table

from fsl_async import Ring, Sparse, Task, kernels
from fsl_async.bin_count import planned
from fsl_async.client.planting import ClientTrees, MasterSeeds, plant
from fsl_async.client.upload import submission_bulk
from fsl_async.config import RoundConfig
from fsl_async.geometry import geometry_of
from fsl_async.server.aggregation import Aggregate, Submission
from fsl_async.wire.public_part import Layout, Part, Trees

from .forgeries import round_of

SHAPES = [(2**16, 655, 64, 1), (2**18, 2621, 128, 1), (2**20, 10486, 128, 1), (2**18, 2621, 64, 18)]
"""Rows, select, ring bits, width."""


def tasks(rows: int, select: int, bits: int, width: int) -> tuple[Task, Task]:
    """A verified task, and the same one semi-honest."""
    block = Sparse("items", rows=rows, select=select, width=width)
    first, second = (
        Task(name="cost", blocks=(block,), ring=Ring(bits), security=security)
        for security in ("verified", "semi-honest")
    )
    return first, second


def planted(config: RoundConfig) -> ClientTrees:
    rng = np.random.default_rng(1)
    block = config.task.sparse(0)
    rows = rng.choice(block.rows, block.select, replace=False).astype(np.uint32)
    return plant(config, {0: rows}, MasterSeeds.fresh(rng.bytes), rng.bytes)


def submitted(config: RoundConfig) -> Submission:
    client_trees = planted(config)
    data = submission_bulk(config, "alice", client_trees, {}, Trees.OWN)[0]
    part = Part(Layout.submission(config.shape, Trees.OWN), data)
    commitments = client_trees.seeds.commitments(config.round_id(), "alice")
    return Submission("alice", client_trees.seeds.msk[0], commitments, client_trees.digest, part, part, memoryview(b""))


def adding(config: RoundConfig) -> Callable[[], None]:
    """What a server does for one submission."""
    aggregate, submission = Aggregate(config, 0, b"key"), submitted(config)

    def work() -> None:
        jobs, finish = aggregate.jobs(submission, threads=1)
        for job in jobs:
            job()
        finish()

    return work


def walking(config: RoundConfig) -> tuple[Callable[[], None], Callable[[], None]]:
    """The kernels with and without proofs, on the same trees."""
    aggregate, submission = Aggregate(config, 0, b"key"), submitted(config)
    ((key, cut),) = aggregate._cuts.items()
    part, forest = submission.part.layout.split(submission.part.data), cut.whole
    evaluation = aggregate._evaluation(submission, key, cut, part)
    verification = aggregate._verification(submission, cut, part[key, "proof"])
    cells = np.zeros((forest.segments, forest.leaves, forest.planes, forest.bins, 2), dtype=np.uint64)
    add = kernels.adder(evaluation, cells)
    verify = kernels.verifying_adder(evaluation, verification, cells, np.zeros((forest.trees, 2), dtype=np.uint64))

    def with_proofs() -> None:
        for segment in range(forest.segments):
            verify(segment, 0, forest.bins)

    def without() -> None:
        for segment in range(forest.segments):
            add(segment, 0, forest.bins)

    return with_proofs, without


def ratio(first: Callable[[], None], second: Callable[[], None], pairs: int) -> tuple[float, float, float]:
    """Median seconds of both, and the median of the ratios of neighbouring runs."""
    first()
    second()
    times = [(timed(first), timed(second)) for _ in range(pairs)]
    return (
        statistics.median(a for a, _ in times),
        statistics.median(b for _, b in times),
        statistics.median(a / b for a, b in times),
    )


def timed(work: Callable[[], None]) -> float:
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


def lines(pairs: int) -> Iterator[tuple[str, ...]]:
    """One line for each shape."""
    for rows, select, bits, width in SHAPES:
        verified, honest = tasks(rows, select, bits, width)
        forest = geometry_of(planned(verified), planned(verified).sparse(0)).bins
        sizes = [Layout.submission(planned(task), Trees.OWN).size for task in (verified, honest)]
        kernel = ratio(*walking(round_of(verified, 1)), pairs)
        whole = ratio(adding(round_of(verified, 1)), adding(round_of(honest, 1)), pairs)
        yield (
            f"m={rows:,} k={select:,} l={bits} τ={width}",
            f"{forest.proof_bytes * 8 // forest.trees}",
            f"{sizes[0]:,} / {sizes[1]:,}",
            f"{1e3 * kernel[0]:.1f} / {1e3 * kernel[1]:.1f} ms = {kernel[2]:.2f}",
            f"{1e3 * whole[0]:.1f} / {1e3 * whole[1]:.1f} ms = {whole[2]:.2f}",
        )


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    table = Table("shape", "bits per bin", "upload, bytes", "same trees", "tasks", title="verified / semi-honest")
    for line in lines(arguments.pairs):
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
