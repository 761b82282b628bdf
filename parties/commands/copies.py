"""`backup` and `restore`: a copy of a server's store, and a store made from one."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from fsl_async.errors import MisuseError, StorageError
from parties.commands.report import Report, leaving_nothing_behind, reported

if TYPE_CHECKING:
    from parties.deployment.backup import Backup, Restored
    from parties.server.history import Progress


@reported("backup")
def backup(report: Report, config: Path, target: Path, *, model: Path | None = None, task: str = "") -> None:
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
    from parties.deployment.backup import back_up
    from parties.settings.host_file import task_settings

    file = task_settings(config, task)
    with leaving_nothing_behind():
        made = back_up(file, target, model)
    report.result(
        _backed_up(made, file.identity, model),
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


def _backed_up(made: Backup, keys: Path, model: Path | None) -> str:
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


@reported("restore")
def restore(
    report: Report,
    config: Path,
    copy: Path,
    *,
    has_run: Literal["no", "yes", "unknown"] | None = None,
    task: str = "",
) -> None:
    """Make a server's store from a copy.

    This is safe only if the server has not run since the copy was made. One of three answers holds. The mark beside the
    old store shows that it has not: the store is made. The mark shows that it has: nothing is restored. There is no
    mark: only you know, and are asked.

    Parameters
    ----------
    config:
        The server's TOML file. The store that it names must not exist.
    copy:
        The file that `fsl-async backup` wrote, with the folder of bulk that it wrote beside it; they are not changed.
    has_run:
        Whether the server has run since the copy was made, where there is no mark; on a terminal you are asked.
    task:
        The name of the task whose store is made; needed where the server has several.
    """
    from parties.deployment import backup as copies
    from parties.settings.host_file import task_settings

    with leaving_nothing_behind():
        made = copies.restore(task_settings(config, task), copy, time.time(), partial(_require_rest, has_run))
    report.result(
        _restored(made, copy),
        {
            "server": made.server,
            "store": str(made.store),
            "copy": str(copy),
            "settled": made.settled,
            "newest": made.newest,
        },
    )


def _require_rest(has_run: str | None, standing: Progress) -> None:
    """Let a server go on from a copy only where a person says that it has not run since.

    Raises:
        MisuseError: nobody is there to be asked.
        StorageError: it has run, or nobody knows.
    """
    name, last = f"S{standing.server}", standing.settled
    if has_run is None and sys.stdin.isatty():
        print(f"There is no mark. Has {name} run since the copy was made, after round {last}?", file=sys.stderr)
        has_run = input("no, yes or unknown: ").strip()
    if has_run not in ("no", "yes", "unknown"):
        raise MisuseError(
            f"no mark tells whether {name} has run since the copy was made, after round {last}; nothing is restored. "
            "Say --has-run no, or yes, if you know it; unknown, if nobody does"
        )
    if has_run != "no":
        raise StorageError(
            f"nothing is restored: {name} may have run since, and a second answer to a round could expose a client. "
            f"Begin anew on both servers, as docs/operations.md says. What ends: every round after {last}, whose "
            "clients train anew; sessions, clients' state files, and who enrolled with a token; what is spent of the "
            "privacy budget, and evidence. What stays: keys, lists, the task, and the model: that of the last round, "
            f"or that after round {last} in the copy"
        )


def _restored(made: Restored, copy: Path) -> str:
    name = f"S{made.server}"
    until = f"after round {made.settled}" if made.settled else "before its first round is over"
    first = f"{made.store}: the store of {name} {until}, from {copy}"
    if made.newest:
        return f"{first}\n{name} has done nothing since the copy was made, and resumes from there."
    return "\n".join(
        [
            first,
            f"You said that {name} has not run since. If it has, do not start it: begin anew on both servers, as "
            "docs/operations.md says.",
            f"When it is started, {name} aborts the round that the copy had begun, unless it had committed to its "
            "share there; assume that the other server knows that round's sum.",
        ]
    )
