"""`serve`, `worker` and `scheduler`: a server in a process of its own, and the processes of its cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parties.commands.report import Report, reported

if TYPE_CHECKING:
    from parties.deployment.process import ServedTask


@reported("serve")
async def serve(report: Report, config: Path, *, stop_seconds: float | None = None) -> None:
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


def _text(task: ServedTask) -> str:
    rounds = f"{task.status.rounds_done} rounds done, {task.status.rounds_aborted} aborted"
    return f"{rounds}; {task.standing.explanation or task.doing}"


def _plain(task: ServedTask) -> dict[str, Any]:
    return {
        "rounds_done": task.status.rounds_done,
        "rounds_aborted": task.status.rounds_aborted,
        "state": task.doing,
    }


@reported("worker")
async def worker(report: Report, config: Path, *, task: str = "", threads: int = 0) -> None:
    """Run one worker of a server with engine = "dask" in its file, until it is told to stop.

    A worker reads what clients have sent from the server's blobs, adds it up, and sends the server sums alone. Start as
    many as there are hosts, with the server's file, the task file, and a certificate of the cluster's authority; the
    server's keys are not needed. Blobs must be where all of them reach them: in an object store, unless all are on one
    host.

    A worker that dies loses nothing: what it had is given to others. It ends when its scheduler does; let a supervisor
    start it again.

    Parameters
    ----------
    config:
        The server's TOML file.
    task:
        The name of the task, where the file has several: each has workers of its own.
    threads:
        How many threads to compute with; 0: as the file says, or one for each core.
    """
    from parties.deployment import worker as serving

    served = await serving.serve_worker(config, task=task, threads=threads)
    report.result(
        f"a worker of S{served.server}, task {served.task}: stopped",
        {"server": served.server, "task": served.task, "ending": "stopped"},
    )


@reported("scheduler")
async def scheduler(report: Report, config: Path, *, task: str = "") -> None:
    """Run the scheduler of a server's cluster at the address that its file names, until it is told to stop.

    The same as Dask's own scheduler, with settings that are safe here: mutual TLS, no HTTP pages, no stealing of work,
    and workers that are not heard of for compute.worker_ttl seconds count as gone.

    Parameters
    ----------
    config:
        The server's TOML file.
    task:
        The name of one of its tasks, where the file has several.
    """
    from parties.deployment import worker as serving

    served = await serving.serve_scheduler(config, task=task)
    report.result(f"the scheduler of S{served.server}: stopped", {"server": served.server, "ending": "stopped"})
