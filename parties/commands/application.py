"""The `fsl-async` command as a whole: which subcommands there are, and how it begins and ends.

Each subcommand parses its words, calls one function elsewhere, and reports; errors end in one line on stderr and a
stable exit code (see `parties.report`). What only one subcommand needs is imported when that one runs.
"""

from __future__ import annotations

import importlib.metadata
import sys
from functools import partial

from cyclopts import App, CycloptsError

from parties.commands.backup import backup
from parties.commands.checking import preflight
from parties.commands.clients import retrieve, submit
from parties.commands.keys import enrol, keygen
from parties.commands.members import clients, peers
from parties.commands.operating import log_level, rounds, status
from parties.commands.restore import restore
from parties.commands.serve import serve
from parties.commands.trying import bench, demo, plan
from parties.report import ExitCode

__all__ = ["app", "main"]

app = App(
    name="fsl-async",
    help="Federated submodel learning on two servers: private retrieval and secure aggregation.",
    version=partial(importlib.metadata.version, "fsl-async"),
    version_flags=["--version"],
    help_format="plaintext",
    result_action="return_value",
)

for command in (
    backup,
    bench,
    demo,
    enrol,
    keygen,
    log_level,
    plan,
    preflight,
    restore,
    retrieve,
    serve,
    status,
    submit,
):
    app.command(command)
for group in (clients, peers, rounds):
    app.command(group)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        words, command = " ".join(str(error).split()), " ".join(["fsl-async", *(error.command_chain or ())])
        sys.stderr.write(f"fsl-async: {words}; `{command} --help` tells what there is\n")
        code = ExitCode.USAGE
    sys.exit(int(code or ExitCode.OK))
