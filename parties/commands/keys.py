"""`keygen` and `enrol`: a party's keys, and tokens with which clients enrol."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from parties.commands.report import Report, reported


@reported("keygen")
def keygen(report: Report, path: Path, *, name: str = "") -> None:
    """Make a party's keys: PATH (secret, readable by its owner only), and PATH with the suffix .pub (public).

    Parameters
    ----------
    path:
        The secret file to write, such as alice.key; an existing file is not overwritten.
    name:
        The party's name; by default the name of the file without its suffix.
    """
    from parties.files.disk import exists
    from parties.identity.keys import Identity

    if not path.stem or (exists(path) and path.is_dir()):
        raise MisuseError(f"path: the name of a file to write the secret keys to expected, as alice.key, got {path}")
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


@reported("enrol")
def enrol(report: Report, file: Path, task: Path, *, tokens: int = 1) -> None:
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
    from parties.identity.tokens import add_tokens, new_tokens
    from parties.settings.task_file import Deployment

    made = new_tokens(tokens)
    total = add_tokens(file, Deployment.load(task).task.digest(), made)
    report.progress(
        f"{file}: {total} tokens; a server reads it when it starts, and both need the same file. Each token below "
        "is for one client, and no file keeps it:"
    )
    report.result("\n".join(made), {"file": str(file), "tokens": made, "in_file": total})
