"""`fsl-async plan`: answer a question, and report the answer as text, one object and, where asked for, a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from fsl_async.costs.variants import Question
from fsl_async.errors import MisuseError
from fsl_async.task import Task
from parties.commands.plan.calibration import measure
from parties.commands.plan.figures import Assumptions
from parties.commands.plan.plan import make_plan, question_about, question_of, result_of
from parties.commands.plan.view import compare_with_paper, draw, paper_text, text_of
from parties.commands.report import Report
from parties.files.toml import read_toml

__all__ = ["question_from", "run_plan"]


BLOCK: dict[str, Any] = {"rows": 2**20, "select": 10_486, "width": 1, "bits": 64, "security": "verified"}
"""What is planned where nothing is said: the paper's largest case, 1 % selected."""

SETTINGS = ("selection", "updates", "alignment", "security")


class _TaskFile(msgspec.Struct):
    """The part of a task file that is planned: servers may be in it, or not yet."""

    task: Task


def question_from(
    path: Path | None, described: dict[str, Any], *, clients: int | None, rounds: int, union: int, dtype: str
) -> Question:
    """The question about a task file, or about a task of one sparse block that options describe.

    Args:
        path: the task file; None where there is none.
        described: the options that were given; beside a file only settings, which go before its own.
        clients: how many take part; None for the default.
        rounds: how many rounds there are.
        union: rows of the union; 0 for the most there can be.
        dtype: the model's.

    Raises:
        MisuseError: the file is wrong, a number is out of its range, or an option contradicts the file.
    """
    if path is None:
        return question_of(
            **BLOCK | described, clients=100 if clients is None else clients, rounds=rounds, union=union, dtype=dtype
        )
    strange = [field for field in described if field not in SETTINGS]
    if strange:
        raise MisuseError(f"{path} says what the blocks are: leave out --{strange[0]}, or change it in the file")
    task = msgspec.structs.replace(_read_task(path), **described)
    return question_about(task, clients=clients or 0, rounds=rounds, union=union, dtype=dtype)


def _read_task(path: Path) -> Task:
    """The task of a task file, whose servers do not matter.

    Raises:
        MisuseError: it cannot be read, is not TOML, or its task is none.
    """
    try:
        return msgspec.convert(read_toml(path), _TaskFile).task
    except msgspec.ValidationError as error:
        raise MisuseError(f"{path}: {str(error).replace('`$.', '`')}") from error


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
