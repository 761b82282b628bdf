"""Presents a server's plan as a table."""

from __future__ import annotations

from dataclasses import replace

from fsl_async.costs.scaling import SEALED, Stage, Workers
from parties.commands.plan.figures import percent, size
from parties.commands.plan.server_plan import ServerPlan, WorkersPlan
from parties.commands.plan.view import aligned


def server_text(plan: ServerPlan) -> str:
    """The plan as text."""
    return f"{_verdict(plan)}\n\n{server_details(plan)}"


def server_details(plan: ServerPlan) -> str:
    """The plan as text, without its verdict."""
    return "\n".join(
        [
            _heading(plan),
            "",
            *aligned(_table(plan)),
            "",
            *_rooms(plan),
            *([] if plan.workers is None else _workers(plan.workers)),
            "",
            *_advice(plan),
            "",
            _source(plan),
        ]
    )


def _verdict(plan: ServerPlan) -> str:
    limit = plan.limit
    said = (
        f"The first limit in time is the {limit.first.part}: {count_text(limit.clients_per_hour)} clients an hour "
        f"while a round is open; a round of {plan.clients:,} that come all at once takes "
        f"{_seconds(limit.round_seconds)}."
    )
    short = [f"{name}: {size(needed)} needed, {size(had)} given" for name, needed, had in plan.rooms.short()]
    return f"Does not fit: {'; '.join(short)}.\n{said}" if short else said


def _heading(plan: ServerPlan) -> str:
    host = plan.host
    helped = "" if host.workers is None else f", {_hands(host.workers)}"
    return (
        f'task "{plan.task.name}": {plan.clients:,} clients in a round, {size(plan.load.size)} of bulk and '
        f"{plan.load.leaves:,} leaves from each\nhost: {host.threads} threads{helped}; {host.network / 1e6:,.0f} "
        f"Mbit/s from clients, {host.link / 1e6:,.0f} Mbit/s between the servers"
    )


def _table(plan: ServerPlan) -> list[list[str]]:
    most = plan.limit.first.seconds
    lines = [["part of the server", "a client takes", "at a time", "busy at the limit", "alone it could take"]]
    return lines + [
        [
            stage.part + " ◀" * (stage is plan.limit.first),
            _seconds(stage.work),
            f"{stage.lanes}",
            percent(stage.seconds / most),
            _rate(stage),
        ]
        for stage in plan.limit.stages
    ]


def _rate(stage: Stage) -> str:
    return f"{count_text(3600 / stage.seconds)} an hour" if stage.seconds else "–"


def _rooms(plan: ServerPlan) -> list[str]:
    rooms, limit = plan.rooms, plan.limit
    had = {"memory": rooms.memory_had, "disk": rooms.disk_had}
    needs = [
        f"{name}: {size(needed)}" + (f" of {size(had[name])}" if had[name] else "")
        for name, needed in (("memory", rooms.memory), ("disk", rooms.disk))
    ]
    return [
        f"needs {', '.join(needs)} for one round",
        f"a round: {_seconds(limit.collecting)} to take all clients that come at once, "
        f"{_seconds(limit.ending)} from the last one to the next model",
    ]


def _workers(plan: WorkersPlan) -> list[str]:
    lines = [
        f"a worker: {count_text(plan.hourly)} clients an hour; {size(plan.reads)} of each to read, "
        f"{size(plan.sends)} in memory and to send for every {SEALED}"
    ]
    if plan.needed is None:
        return lines
    needed = plan.needed
    need = _hands(replace(plan.workers, count=needed.count))
    said = f"{count_text(needed.hourly)} clients an hour need {need}"
    rate = f"{count_text(needed.limit.clients_per_hour)} ({needed.limit.first.part})"
    return [*lines, f"{said}; all in all {rate} an hour are then possible{'' if needed.enough else ', which is less'}"]


def _hands(workers: Workers) -> str:
    return (
        f"{workers.count:,} worker{'s' * (workers.count > 1)} of {workers.threads} thread{'s' * (workers.threads > 1)}"
    )


def _advice(plan: ServerPlan) -> list[str]:
    lines = ["What would move the limit, one after the other:"] if plan.steps else []
    before = plan.limit.clients_per_hour
    for number, step in enumerate(plan.steps, start=1):
        now = step.limit.clients_per_hour
        lines.append(
            f"  {number}. {step.words}: {count_text(now)} clients an hour ({now / before:.2g} ×); "
            f"then the limit is the {step.limit.first.part}"
        )
        before = now
    return [*lines, *([f"  {'Then' if plan.steps else 'Now'}: {plan.stuck}."] if plan.stuck else [])]


def _source(plan: ServerPlan) -> str:
    said = f"Constants measured on {plan.constants.machine}."
    return said + " `fsl-async bench --calibrate FILE` measures this one." if plan.elsewhere else said


def _seconds(seconds: float) -> str:
    for unit, scale, least in (("h", 3600.0, 5400.0), ("min", 60.0, 90.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3)):
        if seconds >= least:
            return f"{seconds / scale:.3g} {unit}"
    return f"{1e6 * seconds:.3g} µs" if seconds else "0"


def count_text(count: float) -> str:
    """A number of clients with three digits that say something."""
    return f"{float(f'{count:.3g}'):,.0f}"
