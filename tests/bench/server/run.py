"""Runs the figures of a server."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from tests.bench.results import BenchReport
from tests.bench.run import collect
from tests.bench.server.figures import LARGE_WARNING, server_figures


def run_server(only: tuple[str, ...], report: BenchReport, *, sized: bool, beside: Path | None = None) -> None:
    """Measure a server's figures.

    Args:
        only: which figures; none for all but the large one.
        report: where results are written.
        sized: whether options say sizes, which this suite fixes itself.
        beside: another version's interpreter.

    Raises:
        MisuseError: an option is wrong, or this is not Linux.
        FslError: a process failed, or a sum is wrong.
    """
    if sized:
        raise MisuseError("server: its sizes are fixed: of all options it takes --only and --beside")
    if "large" in only:
        report.progress(LARGE_WARNING)
    report.results(collect("server", server_figures(only, beside), report))
