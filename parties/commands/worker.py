"""`worker` and `scheduler`: the processes of a cluster that computes for a server."""

from __future__ import annotations

from pathlib import Path

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

__all__ = ["scheduler", "worker"]


def worker(config: Path, *, task: str = "", threads: int = 0, form: FormatFlag = "text") -> int:
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
    report = Report("worker", form)

    async def work() -> None:
        from parties.deployment import worker as serving

        served = await serving.serve_worker(config, task=task, threads=threads)
        report.result(
            f"a worker of S{served.server}, task {served.task}: stopped",
            {"server": served.server, "task": served.task, "ending": "stopped"},
        )

    return run(report, work)


def scheduler(config: Path, *, task: str = "", form: FormatFlag = "text") -> int:
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
    report = Report("scheduler", form)

    async def work() -> None:
        from parties.deployment import worker as serving

        served = await serving.serve_scheduler(config, task=task)
        report.result(f"the scheduler of S{served.server}: stopped", {"server": served.server, "ending": "stopped"})

    return run(report, work)
