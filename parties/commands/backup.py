"""`backup`: a copy of a server's store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parties.commands.report import Report
from parties.commands.running import FormatFlag, leaving_nothing_behind, run_plainly

if TYPE_CHECKING:
    from parties.deployment.backup import Backup

__all__ = ["backup"]


def backup(config: Path, target: Path, *, model: Path | None = None, task: str = "", form: FormatFlag = "text") -> int:
    """Copy a server's store, and its clients' bulk if that lies in a folder. The server may be running.

    Parameters
    ----------
    config:
        The server's TOML file.
    target:
        The file to write, readable by its owner only; an existing file is not overwritten. The folder of bulk is
        written beside it: `copy.blobs` for `copy.sqlite`.
    model:
        Also write the copy's model into this .npz or .safetensors file.
    task:
        The name of the task whose store is copied; needed where the server has several.
    """
    report = Report("backup", form)

    def work() -> None:
        from parties.deployment.backup import back_up
        from parties.settings.host_file import task_settings

        file = task_settings(config, task)
        with leaving_nothing_behind():
            made = back_up(file, target, model)
        report.result(
            _text(made, file.identity, model),
            {
                "server": made.server,
                "store": str(made.store),
                "copy": str(made.target),
                "bytes": made.size,
                "settled": made.settled,
                "blobs": str(made.blobs or ""),
                "blobs_bytes": made.blobs_size,
                "model": str(model or ""),
            },
        )

    return run_plainly(report, work)


def _text(made: Backup, keys: Path, model: Path | None) -> str:
    name = f"S{made.server}"
    until = f"after round {made.settled}" if made.settled else "before its first round is over"
    lines = [
        f"{made.target}: the store of {name} {until}, {made.size:,} bytes, checked",
        *([f"{made.blobs}: its clients' bulk, {made.blobs_size:,} bytes; it belongs to it"] if made.blobs else []),
        f"It holds secrets, as {keys} does: keep both where only you can read them, and not on this disk alone.",
        f"To resume from it, if {name} has not run since: `fsl-async restore` makes a store from it. `serve` refuses "
        "the copy itself.",
        f"If {name} has run since, do not: two different answers can expose a client. Begin anew on both servers, from "
        "the same model, as docs/operations.md says.",
    ]
    return "\n".join([*lines, *([f"{model}: the model {until}"] if model else [])])
