"""What this host does for a user's own task: one sentence, clients an hour, with the first limit by name.

The formulae are the scaling model's (`fsl_async.costs.scaling`) with constants of this machine. What a server computes
for one client, its submission's evaluation and the answer to its retrieval, is measured with the task's own blocks on
all processors, and takes the place of what the constants say of evaluation. What messages take, those of a retrieval
included, comes from the constants.

Rules: constants of another machine are refused, because the sentence speaks of this one; what a task's server has no
room for is not measured, and the sentence says that it does not fit; nothing is sent anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from fsl_async.costs.message_sizes import Setting, specimen_config
from fsl_async.costs.scaling import Constants, HostCapacity, Load, evaluation, load_of
from fsl_async.errors import MisuseError
from fsl_async.options.taking_part import without_a_draw
from fsl_async.server.aggregation import Aggregate
from fsl_async.server.batch import at_once
from fsl_async.server.retrieval import PermutedModel
from fsl_async.task import Task
from fsl_async.union import union_task
from parties.commands.bench.calibrating import calibrated
from parties.commands.bench.machine import cores, processor_seconds, this_machine
from parties.commands.bench.workload import PROOF_KEY, add_together, answer_together, idle_client
from parties.commands.plan.calibration import load_constants
from parties.commands.plan.figures import size
from parties.commands.plan.server_plan import ServerPlan, plan_server, result_of_server
from parties.commands.plan.server_view import count_text, server_details
from parties.commands.report import Report
from parties.deployment.process_memory import MEMINFO, total_and_free_memory
from parties.settings.writing import load_task

REPETITIONS = 5
MOST_TOGETHER = 16
MEGABIT = 1e6
NETWORK, LINK = 10_000.0, 1_000.0
DTYPE = "f4"


@dataclass(frozen=True)
class Work:
    """What a server computes for one client, in seconds of one thread.

    Attributes:
        evaluation: to add its submission.
        answers: to answer its retrieval; 0 where clients need none to submit.
    """

    evaluation: float
    answers: float


def say_what_this_host_does(
    file: Path, constants: Path | None, report: Report, *, network: float | None = None, link: float | None = None
) -> None:
    """Measure, and say it, with the parts of a server.

    Args:
        file: the task file.
        constants: the file of this machine's constants; None to measure them.
        report: hears of it.
        network: megabits that it receives from clients in a second.
        link: megabits that the servers send each other in a second, each way.

    Raises:
        MisuseError: the file is no task file, its clients submit nothing, an option is out of range, or the constants
            are another machine's.
    """
    arriving, between = NETWORK if network is None else network, LINK if link is None else link
    host = HostCapacity(cores(), MEGABIT * arriving, MEGABIT * between)
    plan = _plan_of(file, host, constants, report.progress)
    told = {"sentence": sentence(plan), "clients_per_hour": hourly(plan), "first_limit": plan.limit.first.part}
    report.result(f"{sentence(plan)}\n\n{server_details(plan)}", told | {"server": result_of_server(plan)})


def _plan_of(file: Path, host: HostCapacity, known: Path | None, progress: Callable[[str], None]) -> ServerPlan:
    """The plan of a server of the task on this machine, with what was measured on it."""
    task = load_task(file)
    load = load_of(task)
    clients = max(2, task.quorum, min(100, task.max_clients))
    constants = _constants(known, progress)
    if _retrieves(task) and constants.retrieval is None:
        raise MisuseError(
            f"{known} says nothing of retrievals, which clients of task {task.name!r} need to submit: "
            f"measure anew with `fsl-async bench --calibrate {known}`, or leave out --constants"
        )
    memory = float(total_and_free_memory()[0]) if MEMINFO.exists() else 0.0
    planned = partial(plan_server, task, clients=clients, dtype=DTYPE, memory=memory)
    plan = planned(host=host, constants=constants)
    if any(name == "memory" for name, _, _ in plan.rooms.short()):
        return plan
    progress("measuring what a client of this task takes, on all processors at once")
    work = work_of_a_client(task)
    return planned(host=replace(host, answers=work.answers), constants=_with(constants, load, work.evaluation))


def sentence(plan: ServerPlan) -> str:
    """What the host does for the task, in plain words."""
    limit, name = plan.limit, plan.task.name
    served = f"{count_text(limit.clients_per_hour)} clients an hour for your task"
    first = f"the first limit is the {limit.first.part}"
    does = "retrieves once and submits once" if plan.host.answers else "submits once"
    short = [f"{size(needed)} of {name}, and there are {size(had)}" for name, needed, had in plan.rooms.short()]
    omitted = _omitted(plan.task)
    if short:
        return (
            f'This host does not serve your task "{name}": a server needs {"; ".join(short)}. With enough, this host '
            f"serves {served}, each of which {does}, while a round is open; then {first}.{omitted}"
        )
    return f'This host serves {served} "{name}", each of which {does}, while a round is open; {first}.{omitted}'


def _omitted(task: Task) -> str:
    """What a server of the task does that is not counted, as a sentence."""
    omitted = [
        *(["the proof of the bound"] if task.bound is not None else []),
        *(["the union before the round"] if task.alignment == "union" else []),
    ]
    return f" Not counted: {' and '.join(omitted)}." if omitted else ""


def hourly(plan: ServerPlan) -> float:
    """Clients in an hour; none where the task's server does not fit."""
    return 0.0 if any(plan.rooms.short()) else plan.limit.clients_per_hour


def _constants(path: Path | None, progress: Callable[[str], None]) -> Constants:
    if path is None:
        progress("measuring this machine, about two minutes; `--constants FILE` takes what was measured before")
        return calibrated(lambda step: progress(f"measuring {step}"))
    constants = load_constants(path)
    if constants.machine != this_machine():
        raise MisuseError(
            f"{path} has constants of {constants.machine!r}, and this is {this_machine()!r}: measure this one with "
            f"`fsl-async bench --calibrate {path}`, or leave out --constants; `fsl-async plan` speaks of others"
        )
    return constants


def _with(constants: Constants, load: Load, measured: float) -> Constants:
    """The constants with evaluation as it was measured: each of its terms in the same proportion."""
    said = evaluation(load, constants)
    if said <= 0:
        return replace(constants, submission=measured)
    terms = {name: getattr(constants, name) * measured / said for name in ("submission", "leaf", "plane", "proof")}
    return replace(constants, **terms)


# ---- one client's work, measured


def work_of_a_client(task: Task) -> Work:
    """Measure what a server computes for a client of a task, with all processors at work on it.

    A bound's proof and a union before a round are left out, as they are in the model.
    """
    config = specimen_config(_summed(task), Setting(("client",), DTYPE))
    client = idle_client(config)
    together = min(MOST_TOGETHER, at_once(config.shape, cores()))
    state, submissions = Aggregate(config, 0, PROOF_KEY), [client.submissions()[0]] * together
    adding = processor_seconds(lambda: add_together(state, submissions, cores()), REPETITIONS)
    answers = 0.0
    if _retrieves(task):
        model = {block.name: np.zeros(block.shape, DTYPE) for _, block in config.shape.sparse_blocks()}
        tables, query = PermutedModel(config, 0, model), client.query(0)
        answers = processor_seconds(lambda: answer_together(tables, [query], cores()), REPETITIONS)
    return Work(adding / together, answers)


def _retrieves(task: Task) -> bool:
    """Whether a client must retrieve before it submits."""
    return task.protocol == "ssa" and task.updates == "retrieved" and any(task.sparse_blocks())


def _summed(task: Task) -> Task:
    """The task of the round that is measured: over all rows, everybody takes part, nothing is proved of an update."""
    if task.protocol == "psu":
        return union_task(task)
    return msgspec.structs.replace(
        without_a_draw(task), alignment="all", bound=None, bound_proof="exact", privacy=None, optimizer=None
    )
