"""Presents a server's plan: as a table, and a day as a table, as bars by the hour and as a picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fsl_async.costs.day import DayReport, hours_chart
from fsl_async.costs.scaling import Stage
from fsl_async.costs.workers import SEALED, Workers
from fsl_async.errors import MisuseError
from parties.commands.plan.figures import percent, size
from parties.commands.plan.server_plan import ServerPlan
from parties.commands.plan.view import aligned
from parties.commands.plan.workers_plan import WorkersPlan

__all__ = ["count_text", "draw_day", "server_details", "server_text"]


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
            *([] if plan.day is None else ["", *_day(plan, plan.day)]),
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


def _day(plan: ServerPlan, day: DayReport) -> list[str]:
    lengths = [seconds for seconds, _ in day.rounds]
    lines = [["waited for", "submissions", "busy", "mean wait", "1 % waited longer than", "most at a time"]]
    lines += [
        [
            part.part,
            f"{part.served:,}",
            percent(part.busy),
            _seconds(part.mean),
            _seconds(part.late),
            f"{part.longest:,}",
        ]
        for part in day.passage.parts
    ]
    return [
        f"A day, played: {day.arrived:,} clients came, {day.counted:,} were counted, {day.left:,} left while they "
        f"uploaded, {day.unserved:,} came too late for the last round; {day.repeated:,} uploads missed their round and "
        "were done again.",
        f"{len(day.rounds)} rounds, each {_seconds(min(lengths))} to {_seconds(max(lengths))}; from the end of an "
        f"upload to its receipt {_seconds(day.receipt[0])} (median), {_seconds(day.receipt[1])} (99 %).",
        "",
        *aligned(lines),
        "",
        f"came, by hour       {hours_chart(day.arrivals)}  at most {max(day.arrivals):,}",
        f"inside, by hour     {hours_chart(day.inside)}  at most {max(day.inside):,} at a time",
    ]


def _source(plan: ServerPlan) -> str:
    said = f"Constants measured on {plan.constants.machine}."
    return said + " `fsl-async bench server --calibrate FILE` measures this one." if plan.elsewhere else said


def _seconds(seconds: float) -> str:
    for unit, scale, least in (("h", 3600.0, 5400.0), ("min", 60.0, 90.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3)):
        if seconds >= least:
            return f"{seconds / scale:.3g} {unit}"
    return f"{1e6 * seconds:.3g} µs" if seconds else "0"


def count_text(count: float) -> str:
    """A number of clients with three digits that say something."""
    return f"{float(f'{count:.3g}'):,.0f}"


# ---- the picture


def draw_day(plan: ServerPlan, path: Path) -> None:
    """Draw by the hour who came and the most submissions that were in the server at a time.

    Raises:
        MisuseError: no day was played, matplotlib is missing, or the file cannot be written.
    """
    if plan.day is None:
        raise MisuseError("plot: a server's plan has a picture of its day: add --day")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MisuseError("plot: matplotlib is missing; install fsl-async with its extra `plot`") from error
    figure = Figure(figsize=(7, 5), layout="constrained")
    came, inside = figure.subplots(2, 1, sharex=True)
    hours = range(24)
    came.bar(hours, plan.day.arrivals)
    came.set_ylabel("clients that came")
    inside.bar(hours, plan.day.inside, color="tab:orange")
    inside.set_ylabel("most inside at a time")
    inside.set_xlabel("hour of the day")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise MisuseError(f"plot: {path} cannot be written: {error}") from error
