"""`door`: one door of a server in a process of its own."""

from __future__ import annotations

from pathlib import Path

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run

__all__ = ["door"]


def door(
    config: Path,
    *,
    name: str = "",
    stop_seconds: float = 10.0,
    until_stdin_ends: bool = False,
    form: FormatFlag = "text",
) -> int:
    """Run one door of a server with [doors] in its file, until it is told to stop.

    A door takes clients' connections and what they send, stores it, and asks the server, whose process runs `serve`,
    about everything. `serve` starts those of its own host; start others on further hosts, with the server's file, the
    task file and the file of the server's channel key alone, which `keygen --channel-of` makes. Blobs must then be in
    an object store that all of them reach.

    On SIGTERM it takes no further client and finishes what is under way, then stops; on SIGHUP it reads the log level
    again. A door that dies loses nothing that was acknowledged: its clients come back to another one.

    Parameters
    ----------
    config:
        The server's TOML file.
    name:
        The door's name, one of a kind among those of the server; by default the host's.
    stop_seconds:
        Seconds that what is under way has to end after SIGTERM.
    until_stdin_ends:
        End at once when stdin is closed: `serve` starts its doors so, and none outlives it.
    """
    report = Report("door", form)

    async def work() -> None:
        from parties.deployment import door as serving

        served = await serving.run_door(config, name=name, until_stdin_ends=until_stdin_ends, stop_seconds=stop_seconds)
        report.result(
            f"{served.name} of S{served.server}: {served.ending}",
            {"server": served.server, "door": served.name, "ending": served.ending},
        )

    return run(report, work)
