"""`serve`: one server in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

if TYPE_CHECKING:
    from parties.deployment.process import ServedTask

__all__ = ["serve"]


def serve(config: Path, *, stop_seconds: float | None = None, form: FormatFlag = "text") -> int:
    """Run one server until its last round is over or it is told to stop.

    On SIGTERM it lets the running round end, then stops; on SIGHUP it reads the list of clients, the tokens and the
    log level again, and of a file with several tasks which tasks there are.

    Parameters
    ----------
    config:
        The server's TOML file.
    stop_seconds:
        Seconds that the running round has to end after SIGTERM; by default rounds.wind_up of the file.
    """
    report = Report("serve", form)

    async def work() -> None:
        from parties.deployment import process as serving

        served = await serving.serve(config, stop_seconds=stop_seconds)
        each = {name: _plain(task) for name, task in served.tasks.items()}
        lines = [f"S{served.server}: {_text(task)}" for task in served.tasks.values()]
        if not served.listed:
            (only,) = each.values()
            report.result(lines[0], {"server": served.server, **only, "ending": served.ending})
            return
        named = [line.replace(":", f", task {name!r}:", 1) for line, name in zip(lines, each, strict=True)]
        standings = {name: task.standing for name, task in served.tasks.items()}
        tasks = [
            {"name": name, **plain, "standing": standings[name].state, "explanation": standings[name].explanation}
            for name, plain in each.items()
        ]
        report.result("\n".join(named), {"server": served.server, "tasks": tasks, "ending": served.ending})

    return run(report, work)


def _text(task: ServedTask) -> str:
    rounds = f"{task.status.rounds_done} rounds done, {task.status.rounds_aborted} aborted"
    return f"{rounds}; {task.standing.explanation or task.doing}"


def _plain(task: ServedTask) -> dict[str, Any]:
    return {
        "rounds_done": task.status.rounds_done,
        "rounds_aborted": task.status.rounds_aborted,
        "state": task.doing,
    }
