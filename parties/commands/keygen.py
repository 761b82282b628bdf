"""`keygen`: a party's keys."""

from __future__ import annotations

from pathlib import Path

from fsl_async.errors import MisuseError
from parties.commands.report import Report
from parties.commands.running import FormatFlag, run_plainly

__all__ = ["keygen"]


def keygen(path: Path, *, name: str = "", form: FormatFlag = "text") -> int:
    """Make a party's keys: PATH (secret, readable by its owner only), and PATH with the suffix .pub (public).

    Parameters
    ----------
    path:
        The secret file to write, such as alice.key; an existing file is not overwritten.
    name:
        The party's name; by default the name of the file without its suffix.
    """
    report = Report("keygen", form)

    def work() -> None:
        from parties.files.disk import exists
        from parties.identity.keys import Identity

        if not path.stem or (exists(path) and path.is_dir()):
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
