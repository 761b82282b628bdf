"""Answers a question to the planner, and reports the plan as text, as a JSON object and, if requested, as a picture."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec

from fsl_async.costs.message_sizes import DIGEST, Setting, Traffic, fetching_whole, specimen_config
from fsl_async.costs.variants import Question, RoundCosts, retrieval_round, union_round, union_trivially
from fsl_async.errors import MisuseError
from fsl_async.ring import Ring
from fsl_async.task import Sparse, Task
from fsl_async.union import UnionBlock
from parties.commands.plan.calibration import measure
from parties.commands.plan.figures import Assumptions, size
from parties.commands.plan.plan import (
    figures,
    framed,
    make_plan,
    question_about,
    question_of,
    result_of,
    statement_bytes,
    transfer,
)
from parties.commands.plan.server_plan import ServerPlan, result_of_server
from parties.commands.plan.server_view import server_text
from parties.commands.plan.view import compare_with_paper, draw, paper_text, text_of
from parties.commands.report import Report
from parties.settings.writing import load_task

BLOCK: dict[str, Any] = {"rows": 2**20, "select": 10_486, "width": 1, "bits": 64, "security": "verified"}
"""The block that is planned by default: the paper's largest case, with 1 % of the rows selected."""

SETTINGS = ("selection", "updates", "alignment", "security")


def question_from(
    path: Path | None, described: dict[str, Any], *, clients: int | None, rounds: int, union: int, dtype: str
) -> Question:
    """The question about a task file, or about a task of one sparse block that options describe; see `question_about`.

    With a file, what is described are settings alone, which take precedence over the file's.

    Raises:
        MisuseError: the file is invalid, a number is out of range, or an option contradicts the file.
    """
    if path is None:
        return question_of(
            **BLOCK | described, clients=100 if clients is None else clients, rounds=rounds, union=union, dtype=dtype
        )
    task = _of_file(path, described)
    return question_about(task, clients=clients or 0, rounds=rounds, union=union, dtype=dtype)


def task_from(path: Path | None, described: dict[str, Any], clients: int | None) -> Task:
    """The task of a file, or the task of one sparse block that options describe, which admits that many clients.

    Raises:
        MisuseError: the file is invalid, a number is out of range, or an option contradicts the file.
    """
    if path is not None:
        return _of_file(path, described)
    fields = BLOCK | described
    settings = {name: fields[name] for name in SETTINGS if name in fields}
    if clients is not None:
        settings["max_clients"] = max(2, clients)
    block = Sparse("rows", rows=fields["rows"], select=fields["select"], width=fields["width"])
    return Task(name="planned", blocks=(block,), ring=Ring(fields["bits"]), min_clients=2, **settings)


def _of_file(path: Path, described: dict[str, Any]) -> Task:
    strange = [field for field in described if field not in SETTINGS]
    if strange:
        raise MisuseError(f"{path} says what the blocks are: leave out --{strange[0]}, or change it in the file")
    return msgspec.structs.replace(load_task(path), **described)


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
        question: the question.
        assumptions: bandwidths, and `TYPICAL` speeds.
        calibrate: whether to measure this machine's speeds instead.
        paper: whether to compare with the paper's figures as well.
        plot: the file into which to draw the upload over k/m; None for no picture.
        report: where the plan is written.

    Raises:
        MisuseError: matplotlib is missing, or the file cannot be written.
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


def report_server(plan: ServerPlan, report: Report) -> None:
    """Report the plan of a server's host."""
    report.result(server_text(plan), {"server": result_of_server(plan)})


UNIT = {"psr": "retrieval", "psu": "union"}


def plan_alone(
    path: Path, task: Task, *, clients: int, union: int, dtype: str, assumptions: Assumptions, report: Report
) -> None:
    """Tell the costs of one round of a task that only retrieves, or only finds unions.

    Args:
        path: the task file.
        task: the task.
        clients: how many take part; 0 for 100, or as many as the task admits.
        union: the rows of each block's union, at most; 0 for all that the clients can select.
        dtype: the model's.
        assumptions: from which seconds are computed.
        report: where the costs are written.

    Raises:
        MisuseError: there are more clients than the task admits.
    """
    clients = clients or max(2, task.quorum, min(100, task.max_clients))
    if not 1 <= clients <= task.max_clients:
        raise MisuseError(f"clients: the task admits at most max_clients={task.max_clients}, got {clients}")
    setting = _setting(task, clients, dtype)
    found = tuple(
        UnionBlock(block.name, min(block.rows, union or clients * block.select), DIGEST)
        for _, block in task.sparse_blocks()
    )
    if task.protocol == "psr":
        costs, trivial = retrieval_round(task, setting), fetching_whole(task, setting)
    else:
        costs, trivial = union_round(task, setting, found), union_trivially(task, setting)
    result = _result(task, clients, costs, trivial, assumptions)
    report.result(_text(path, task, result), result)


def _setting(task: Task, clients: int, dtype: str) -> Setting:
    digits = len(str(clients))
    setting = Setting(tuple(f"client-{index:0{digits}}" for index in range(clients)), dtype)
    return replace(setting, statement_bytes=statement_bytes(setting, specimen_config(task, setting)))


def _result(task: Task, clients: int, costs: RoundCosts, trivial: Traffic, assumptions: Assumptions) -> dict[str, Any]:
    whole, trivially = figures(costs, clients, assumptions), transfer(trivial, assumptions)
    return {
        "protocol": task.protocol,
        "task": msgspec.to_builtins(task),
        "clients": clients,
        "phases": {name: {"up": framed(part.up), "down": framed(part.down)} for name, part in costs.phases.items()},
        "round": asdict(whole) | {"seconds": whole.seconds},
        "trivial": {"up": trivially.up, "down": trivially.down, "transfer_seconds": trivially.seconds},
        "exact": task.protocol == "psr",
        "worth": whole.transfer_seconds <= trivially.seconds,
    }


def _text(path: Path, task: Task, result: dict[str, Any]) -> str:
    whole, trivial = result["round"], result["trivial"]
    verdict = "Worth it" if result["worth"] else "Not worth it: the trivial protocol is faster"
    lines = [
        f'{path}: task "{task.name}", protocol="{task.protocol}", {result["clients"]:,} clients in a round',
        *(
            f"  {name:<10} {size(part['up']):>10} up {size(part['down']):>10} down"
            for name, part in result["phases"].items()
        ),
        f"  {'together':<10} {size(whole['up']):>10} up {size(whole['down']):>10} down, for each client",
        f"  {'trivial':<10} {size(trivial['up']):>10} up {size(trivial['down']):>10} down",
        f"  between the servers {size(whole['link'])} in a round",
        f"  seconds: {whole['transfer_seconds']:.2g} of transfer, {whole['client_seconds']:.2g} on a client, "
        f"{whole['server_seconds']:.2g} on a server for all clients",
        f"{verdict}: {whole['transfer_seconds']:.2g} s of transfer for one {UNIT[task.protocol]}, where doing it "
        f"trivially takes {trivial['transfer_seconds']:.2g} s.",
    ]
    if task.protocol == "psr":
        lines.append("The trivial protocol is in the program: `retrieve` with `...` for every block.")
    if not result["exact"]:
        lines.append("Bytes are those on the wire, except for the expected length of the union's list.")
    return "\n".join(lines)
