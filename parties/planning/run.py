"""`fsl-async plan`: answer a question, and report the answer as text, one object and, where asked for, a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fsl_async.variants import Question
from parties.planning.calibration import measure
from parties.planning.plan import Assumptions, make_plan, result_of
from parties.planning.view import compare_with_paper, draw, paper_text, text_of
from parties.report import Report

__all__ = ["run_plan"]


def run_plan(
    question: Question,
    assumptions: Assumptions,
    *,
    calibrate: bool,
    paper: bool,
    plot: Path | None,
    report: Report,
) -> None:
    """Plan and report.

    Args:
        question: what is to be planned.
        assumptions: with `TYPICAL` speeds.
        calibrate: measure this machine's speeds instead.
        paper: show the paper's figures beside ours as well.
        plot: where to draw the upload over k/m; nowhere if None.
        report: where to write.

    Raises:
        MisuseError: nothing can be drawn here, or the file cannot be written.
    """
    if calibrate:
        assumptions = replace(assumptions, speeds=measure())
    plan = make_plan(question, assumptions, measured=calibrate)
    text, result = text_of(plan), result_of(plan)
    if paper:
        comparison = compare_with_paper(assumptions)
        text += "\n\n" + paper_text(comparison)
        result["paper"] = comparison
    if plot is not None:
        draw(question, plot)
        result["plot"] = str(plot)
    report.result(text, result)
