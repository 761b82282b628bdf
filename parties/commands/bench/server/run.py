"""Runs `bench server`, and reports figures or constants."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from fsl_async.errors import MisuseError
from parties.commands.bench.results import BenchReport
from parties.commands.bench.run import collect
from parties.commands.bench.server.calibrating import calibrated, constants_table
from parties.commands.bench.server.figures import LARGE_WARNING, server_figures
from parties.commands.plan.constants_file import save_constants
from parties.commands.plan.view import aligned

__all__ = ["run_server"]


def run_server(only: tuple[str, ...], calibrate: Path | None, sized: bool, report: BenchReport) -> None:
    """Measure a server's figures, or the constants of the scaling model.

    Args:
        only: which figures; none for all but the large one.
        calibrate: the file for the constants; None for figures.
        sized: whether options say sizes, which this suite fixes itself.
        report: where results are written.

    Raises:
        MisuseError: an option is wrong, or this is not Linux.
        FslError: a process failed, or a sum is wrong.
    """
    if sized:
        raise MisuseError("server: its sizes are fixed: of all options it takes --only or --calibrate")
    if calibrate is None:
        if "large" in only:
            report.progress(LARGE_WARNING)
        report.results(collect("server", server_figures(only), report))
        return
    if only:
        raise MisuseError("--only: figures are not measured with --calibrate")
    if not calibrate.parent.is_dir():
        raise MisuseError(f"--calibrate: there is no folder {calibrate.parent}")
    constants = calibrated(lambda step: report.progress(f"measuring {step}"))
    save_constants(calibrate, constants)
    text = [f"Constants of {constants.machine}, in {calibrate}:", "", *aligned(constants_table(constants))]
    report.result("\n".join(text), {"file": str(calibrate), "constants": asdict(constants)})
