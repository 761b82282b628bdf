"""`keygen` and `enrol`: what a party or a newcomer shows who it is with."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["enrol", "keygen"]


def keygen(path: Path, *, name: str = "", form: FormatFlag = "text") -> int:
    """Make a party's keys: PATH (secret, readable by its owner alone) and PATH with the suffix .pub.

    Parameters
    ----------
    path:
        The secret file to write; never overwritten.
    name:
        The party's name; by default the file's, without suffix.
    """
    report = Report("keygen", form)

    def work() -> None:
        from parties.identity.keys import Identity

        if not path.stem or path.is_dir():
            raise MisuseError(
                f"path: the name of a file to write the secret keys to expected, as alice.key, got {path}"
            )
        identity = Identity.generate(name or path.stem)
        public = identity.save_both(path)
        keys = identity.public
        report.result(
            f"{path}: secret keys of {keys.name}, keep them\n{public}: public keys, give them out\n{keys.to_toml()}",
            {
                "name": keys.name,
                "secret": str(path),
                "public": str(public),
                "channel": keys.channel.hex(),
                "statement": keys.statement.hex(),
            },
        )

    return run_plainly(report, work)


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
