"""Where the `fsl-async` command begins; what it can do is in `parties.commands`."""

from parties.commands.application import app, main

__all__ = ["app", "main"]
