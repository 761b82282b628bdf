"""Runs benchmarks and reports their results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Literal, TypeAlias

from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from fsl_async import kernels
from fsl_async.errors import MisuseError
from tests.bench.actors import actors_suite
from tests.bench.authentication import retrieval_suite
from tests.bench.bounds import bounds_suite
from tests.bench.cluster.suite import cluster_suite
from tests.bench.contributors import contributors_suite
from tests.bench.din import din_suite
from tests.bench.evaluation import kernels_suite
from tests.bench.generation import generate_suite
from tests.bench.growth import growth_suite
from tests.bench.page import check_writable, write_page
from tests.bench.results import BenchReport, Result
from tests.bench.retrieval import psr_suite
from tests.bench.rounds import large_round, round_suite
from tests.bench.sketch import sketch_suite
from tests.bench.workload import Options

Suite: TypeAlias = Literal[
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
    "cluster",
    "all",
]

SUITES: dict[str, Callable[[Options], Iterator[Result]]] = {
    "kernels": kernels_suite,
    "psr": psr_suite,
    "generate": generate_suite,
    "round": round_suite,
    "din": din_suite,
    "growth": growth_suite,
    "actors": actors_suite,
    "retrieval": retrieval_suite,
    "bounds": bounds_suite,
    "contributors": contributors_suite,
    "sketch": sketch_suite,
    "cluster": cluster_suite,
}
LARGE = "large"
WHOLE = ("kernels", "psr", "retrieval", "generate", "bounds", "contributors", "sketch", "round", LARGE, "din", "growth")
"""What `all` runs, in this order."""


def run_bench(
    suite: Suite, options: Options, isa: str, folder: Path | None, report: BenchReport, *, beside: str = ""
) -> None:
    """Run one suite or all of them, and report.

    Args:
        suite: which suite.
        options: the sizes that the caller has fixed.
        isa: the instruction set; the fastest one if empty.
        folder: the folder into which `all` writes its page; None for no page.
        report: where results are written.
        beside: an option that was given and that only `server` has; empty if there is none.

    Raises:
        MisuseError: a page was requested for a single suite, a number is out of range, this machine lacks the
            instruction set, or an option is another suite's.
        FslError: a computed result is wrong.
    """
    if beside:
        raise MisuseError(f"{beside}: expected with server, not with {suite}")
    if suite == "all" and options.given:
        raise MisuseError("all: runs fixed cases; name one suite to choose its sizes")
    if folder is not None and suite != "all":
        raise MisuseError(f"--write: expected with all, not with {suite}")
    for name, count in (("threads", options.threads), ("clients", options.clients)):
        if count is not None and count < 1:
            raise MisuseError(f"{name}: at least 1 expected, got {count}")
    if folder is not None:
        check_writable(folder)
    kernels.select_isa(isa or None)
    started = perf_counter()
    parts = {}
    for part in WHOLE if suite == "all" else (suite,):
        parts[part] = collect(part, large_round() if part == LARGE else SUITES[part](options), report)
    report.results([result for results in parts.values() for result in results])
    if folder is not None:
        for path in write_page(folder, parts, perf_counter() - started, targets=report.targets):
            report.console.print(f"wrote {path}", highlight=False)


def collect(part: str, results: Iterator[Result], report: BenchReport) -> list[Result]:
    """Run one part, and show its latest figure on stderr."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    # Without automatic refresh: a thread that draws would take time from the measurement.
    with Progress(*columns, console=report.console, transient=True, auto_refresh=False) as progress:
        row = progress.add_task(f"bench {part}", total=None)
        progress.refresh()
        found = []
        for result in results:
            found.append(result)
            progress.update(row, description=f"bench {part}: {result.name}", refresh=True)
    return found
