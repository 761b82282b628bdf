"""`restore`: a server's store, made from a copy."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from parties.commands.report import Report
from parties.commands.running import FormatFlag, leaving_nothing_behind, run_plainly

if TYPE_CHECKING:
    from parties.deployment.restore import Restored

__all__ = ["restore"]


def restore(config: Path, copy: Path, *, task: str = "", form: FormatFlag = "text") -> int:
    """Make a server's store from a copy.

    This is safe only if the server has not run since the copy was made. Where the mark beside the old store shows that
    it has, nothing is restored; where there is no mark, you must know it yourself.

    Parameters
    ----------
    config:
        The server's TOML file. The store that it names must not exist.
    copy:
        The file that `fsl-async backup` wrote, with the folder of bulk that it wrote beside it; they are not changed.
    task:
        The name of the task whose store is made; needed where the server has several.
    """
    report = Report("restore", form)

    def work() -> None:
        from parties.deployment import restore as restoring
        from parties.settings.host_file import task_settings

        with leaving_nothing_behind():
            made = restoring.restore(task_settings(config, task), copy, time.time())
        report.result(
            _text(made, copy),
            {
                "server": made.server,
                "store": str(made.store),
                "copy": str(copy),
                "settled": made.settled,
                "newest": made.newest,
            },
        )

    return run_plainly(report, work)


def _text(made: Restored, copy: Path) -> str:
    name = f"S{made.server}"
    until = f"after round {made.settled}" if made.settled else "before its first round is over"
    first = f"{made.store}: the store of {name} {until}, from {copy}"
    if made.newest:
        return f"{first}\n{name} has done nothing since the copy was made, and resumes from there."
    return "\n".join(
        [
            first,
            f"It is not known what {name} has done since. If it has run since, do not start it: begin anew on both "
            "servers, as docs/operations.md says.",
            f"When it is started, {name} aborts the round that the copy had begun, unless it had committed to its "
            "share there; assume that the other server knows that round's sum.",
        ]
    )
