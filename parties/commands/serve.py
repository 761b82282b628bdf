"""`serve`: one server in a process of its own."""

from __future__ import annotations

from pathlib import Path

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

__all__ = ["serve"]


def serve(config: Path, *, stop_seconds: float | None = None, form: FormatFlag = "text") -> int:
    """Run one server until its last round is over or it is told to stop.

    On SIGTERM it lets the running round end, then stops; on SIGHUP it reads the list of clients, the tokens and the
    log level again.

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
        status = served.status
        rounds = f"{status.rounds_done} rounds done, {status.rounds_aborted} aborted"
        report.result(
            f"S{status.server}: {rounds}; {served.state}",
            {
                "server": status.server,
                "rounds_done": status.rounds_done,
                "rounds_aborted": status.rounds_aborted,
                "ending": served.ending,
                "state": served.state,
            },
        )

    return run(report, work)
