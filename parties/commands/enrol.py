"""`enrol`: tokens with which clients enrol."""

from __future__ import annotations

from pathlib import Path

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["enrol"]


def enrol(file: Path, task: Path, *, tokens: int = 1, form: FormatFlag = "text") -> int:
    """Make enrolment tokens, print them, and add their digests to FILE, which both servers need.

    The tokens themselves are not stored anywhere: give each to one client.

    Parameters
    ----------
    file:
        The file of digests that a server's TOML file names under `tokens`; it is created if it does not exist.
    task:
        The task file: the tokens are for this task, as it is now.
    tokens:
        How many tokens to make; each enrols one client.
    """
    report = Report("enrol", form)

    def work() -> None:
        from parties.identity.tokens import add_tokens, new_tokens
        from parties.settings.task_file import Deployment

        made = new_tokens(tokens)
        total = add_tokens(file, Deployment.load(task).task.digest(), made)
        report.progress(
            f"{file}: {total} tokens; a server reads it when it starts, and both need the same file. Each token below "
            "is for one client, and is kept nowhere:"
        )
        report.result("\n".join(made), {"file": str(file), "tokens": made, "in_file": total})

    return run_plainly(report, work)
