"""The `fsl-async` command as a whole: which subcommands there are, and how it begins and ends.

Each subcommand parses its arguments, calls one function elsewhere, and reports; errors end in one line on stderr and a
stable exit code (see `parties.commands.report`). What only one subcommand needs is imported when that one runs.
"""

from __future__ import annotations

import inspect
import re
import sys
from itertools import pairwise

from cyclopts import App, CycloptsError

from parties.commands.bench_command import bench
from parties.commands.copies import backup, restore
from parties.commands.demo_command import demo
from parties.commands.keys import enrol, keygen
from parties.commands.members import clients, peers
from parties.commands.operating import log_level, rounds, status, tasks
from parties.commands.plan_command import plan
from parties.commands.preflight_command import doctor, preflight
from parties.commands.report import ExitCode, Report
from parties.commands.retrieve import retrieve
from parties.commands.serve import scheduler, serve, worker
from parties.commands.submitting import outcome, resume, submit, unite


def _version() -> str:
    from importlib.metadata import version  # two megabytes, for one option

    return version("fsl-async")


app = App(
    name="fsl-async",
    help="Federated submodel learning on two servers: private retrieval and secure aggregation.",
    version=_version,
    version_flags=["--version"],
    help_format="plaintext",
    result_action="return_value",
)

for command in (
    backup,
    bench,
    demo,
    doctor,
    enrol,
    keygen,
    log_level,
    outcome,
    plan,
    preflight,
    restore,
    resume,
    retrieve,
    scheduler,
    serve,
    status,
    submit,
    unite,
    worker,
):
    app.command(command)
for group in (clients, peers, rounds, tasks):
    app.command(group)


def _wrap_help(command: App) -> None:
    """Join the lines of each help text, so that it wraps at the terminal's width and nowhere else."""
    for name in command:
        _wrap_help(command[name])
    function = command.default_command
    if inspect.isfunction(function):
        prose, parameters, rest = inspect.cleandoc(function.__doc__ or "").partition("\nParameters\n")
        prose = re.sub(r"(?<!\n)\n(?=\S)", " ", prose)
        function.__doc__ = prose + parameters + re.sub(r"(?<!:)\n    (?=\S)", " ", rest)


_wrap_help(app)


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = app(sys.argv[1:], exit_on_error=False, print_error=False)
    except CycloptsError as error:
        code = _usage_error(error)
    sys.exit(int(code or ExitCode.OK))


def _usage_error(error: CycloptsError) -> ExitCode:
    """Report what could not be understood, on stdout too where JSON was asked for."""
    text, command = re.sub(r"(?<!\.)\.$", "", " ".join(str(error).split())), " ".join(error.command_chain or ())
    message = f"{text}; `{' '.join(filter(None, ['fsl-async', command, '--help']))}` shows what there is"
    given = sys.argv[1:]
    if "--format=json" in given or ("--format", "json") in pairwise(given):
        Report(command, "json").usage_error(message)
    sys.stderr.write(f"fsl-async: {message}\n")
    return ExitCode.USAGE
