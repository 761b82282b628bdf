"""`enrol`: tokens with which clients enrol."""

from __future__ import annotations

from pathlib import Path

from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["enrol"]


def enrol(file: Path, *, tokens: int = 1, form: FormatFlag = "text") -> int:
    """Make enrolment tokens: print them, this once, and add their digests to FILE, which goes to both servers.

    Parameters
    ----------
    file:
        The file of digests that a server's TOML file names under `tokens`; made if there is none.
    tokens:
        How many; each lets one client enrol.
    """
    report = Report("enrol", form)

    def work() -> None:
        from parties.identity.tokens import add_tokens, new_tokens

        made = new_tokens(tokens)
        total = add_tokens(file, made)
        report.progress(
            f"{file}: {total} tokens; a server reads it when it starts, and both need the same file. Each token below "
            "is for one client, and is kept nowhere:"
        )
        report.result("\n".join(made), {"file": str(file), "tokens": made, "in_file": total})

    return run_plainly(report, work)
