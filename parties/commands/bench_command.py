"""`bench`: how many clients this host serves for a task, and the constants from which `plan` works it out."""

from __future__ import annotations

from pathlib import Path

from cyclopts import CycloptsError

from fsl_async.errors import MisuseError
from parties.commands.report import Report, reported


@reported("bench")
def bench(
    report: Report,
    *,
    task: Path | None = None,
    constants: Path | None = None,
    network: float | None = None,
    link: float | None = None,
    calibrate: Path | None = None,
) -> None:
    """Say how many clients this host serves in an hour for a task, and what limits it first; or measure its constants.

    Parameters
    ----------
    task:
        The task file (task.toml) of which is said how many clients this host serves in an hour.
    constants:
        With `--task`: the file in which `--calibrate` has stored what it measured on this machine; by default it is
        measured now, in about two minutes.
    network:
        With `--task`: the bandwidth from the clients to a server in megabits per second; by default 10,000.
    link:
        With `--task`: the bandwidth between the servers, each way, in megabits per second; by default 1,000.
    calibrate:
        Without `--task`: measure the constants of `plan --constants`, in about two minutes, and store them in this
        file.
    """
    if (task is None) == (calibrate is None):
        raise CycloptsError(
            msg="give --task with your task file to hear what this host does for it, or --calibrate with a file in "
            "which to store what is measured on this machine",
            command_chain=("bench",),
        )
    if calibrate is not None:
        for name, value in {"constants": constants, "network": network, "link": link}.items():
            if value is not None:
                raise MisuseError(f"--{name}: expected with --task")
        from parties.commands.bench.calibrating import calibrate_into

        calibrate_into(calibrate, report)
    elif task is not None:
        from parties.commands.bench.host import say_what_this_host_does

        say_what_this_host_does(task, constants, report, network=network, link=link)
