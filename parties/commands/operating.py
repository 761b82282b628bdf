"""`status`, `rounds`, `tasks` and `log-level`: what an operator asks of a running server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from fsl_async.errors import FslError, MisuseError
from parties.commands.report import Format, FormatFlag, Report, run

if TYPE_CHECKING:
    from parties.operator.answers import Aborting, Closing, Drawing, LogLevel, TaskRow, TasksAnswer


ServerFlag = Annotated[str, Parameter(help="The server's TOML file, or its operator's port as http://host:port.")]
TaskFlag = Annotated[str, Parameter(help="The task's name; needed where the server has several.")]
TokenFlag = Annotated[
    Path | None, Parameter(help="The file with the operator's token; needed only if WHERE is an address.")
]

TASK_PERIOD = 0.2
"""Seconds between two looks at a task that is about to start or to end."""

rounds = App(
    name="rounds",
    help="The rounds of a running server: list them, show one, close or abort the running one, draw for the next one.",
)

tasks = App(name="tasks", help="The tasks of a running server: list them, drain one, start one again.")


def status(where: ServerFlag, *, once: bool = False, task: TaskFlag = "", form: FormatFlag = "text") -> int:
    """Show the status of a running server, continuously when in a terminal.

    Parameters
    ----------
    once:
        Show it once and end, as is always done where stdout is not a terminal, or with --format json.
    """
    report = Report("status", form)

    async def work() -> None:
        from rich.console import Console

        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import RoundsAnswer, StatusAnswer
        from parties.operator.terminal import PAST_SHOWN, as_text, status_screen, watch

        port = operator_port(where)
        if not once and form == "text" and sys.stdout.isatty():
            with suppress(KeyboardInterrupt):  # how one leaves a live view
                await watch(port, Console(), task)
            return
        now = await port.get("/status.json", StatusAnswer, task=task)
        past = (await port.get(f"/rounds.json?last={PAST_SHOWN}", RoundsAnswer, task=task)).rounds
        report.result(as_text(status_screen(now, past)), now)

    return run(report, work)


@rounds.command(name="list")
def list_rounds(
    where: ServerFlag, *, last: int = 50, before: int = 10**9 - 1, task: TaskFlag = "", form: FormatFlag = "text"
) -> int:
    """List the latest settled rounds and the running one.

    Parameters
    ----------
    last:
        How many rounds at most, from 1 to 1,000.
    before:
        List only rounds with a smaller number than this; use it to page back.
    """
    report = Report("rounds list", form)

    async def work() -> None:
        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import MOST_ROUNDS, RoundsAnswer, StatusAnswer
        from parties.operator.terminal import as_text, rounds_table

        if not 1 <= last <= MOST_ROUNDS:
            raise MisuseError(
                f"last: from 1 to {MOST_ROUNDS:,} rounds can be listed, not {last:,}; --before goes back page by page"
            )
        port = operator_port(where)
        running = (await port.get("/status.json", StatusAnswer, task=task)).round
        listing = f"/rounds.json?last={last}&before={_checked(before)}"
        past = (await port.get(listing, RoundsAnswer, task=task)).rounds
        text = as_text(rounds_table(past)) if past else "no round is settled yet"
        text += f"\nround {running.number} is running: {running.step}, {running.state}" if running else ""
        report.result(text, {"rounds": past, "running": running})

    return run(report, work)


@rounds.command
def show(where: ServerFlag, number: int, *, task: TaskFlag = "", form: FormatFlag = "text") -> int:
    """Show a settled round: who was counted, who was not and why.

    Parameters
    ----------
    number:
        The round's number.
    """
    report = Report("rounds show", form)

    async def work() -> None:
        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import RoundAnswer
        from parties.operator.terminal import as_text, round_screen

        past = await operator_port(where).get(f"/rounds/{_checked(number)}.json", RoundAnswer, task=task)
        report.result(as_text(round_screen(past)), past)

    return run(report, work)


@rounds.command
def abort(
    where: ServerFlag,
    number: int,
    *,
    because: str,
    token_file: TokenFlag = None,
    task: TaskFlag = "",
    form: FormatFlag = "text",
) -> int:
    """Abort the running round on both servers. Nothing of it is revealed, and clients continue with the next round.

    Parameters
    ----------
    number:
        The number of the running round; no other round is aborted if that one has ended by now.
    because:
        The reason, which the other server and the clients are told.
    """
    told = f"round {number} is aborted: {because}"
    return _change_round("abort", where, number, lambda _: told, token_file, task, form, because=because)


@rounds.command
def close(
    where: ServerFlag, number: int, *, token_file: TokenFlag = None, task: TaskFlag = "", form: FormatFlag = "text"
) -> int:
    """Close the open round on both servers, with the clients that have submitted. Those that have not are too late.

    Parameters
    ----------
    number:
        The number of the open round; one that has closed by now is left as it is.
    """

    def told(answer: Any) -> str:
        return f"round {number} is closed; submissions at this server: {answer.submissions}"

    return _change_round("close", where, number, told, token_file, task, form)


@rounds.command
def draw(
    where: ServerFlag, number: int, *, token_file: TokenFlag = None, task: TaskFlag = "", form: FormatFlag = "text"
) -> int:
    """Let no more clients ask to take part in a round, and draw of those that have; the other server follows.

    Parameters
    ----------
    number:
        The number of the round that is gathering clients.
    """

    def told(answer: Any) -> str:
        drawn = f"the clients of round {number} are drawn from those that have asked both servers"
        return f"{drawn}; {answer.asked} have asked this one"

    return _change_round("draw", where, number, told, token_file, task, form)


def _change_round(
    change: Literal["abort", "close", "draw"],
    where: ServerFlag,
    number: int,
    told: Callable[[Any], str],
    token_file: TokenFlag,
    task: str,
    form: Format,
    **body: str,
) -> int:
    """Have a server change a round, and say what became of it, of which `told` makes a line."""
    report = Report(f"rounds {change}", form)

    async def work() -> None:
        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import Aborting, Closing, Drawing

        kinds: dict[str, type[Aborting | Closing | Drawing]] = {"abort": Aborting, "close": Closing, "draw": Drawing}
        port = operator_port(where, token_file)
        answer = await port.change("POST", f"/rounds/{_checked(number)}/{change}", kinds[change], task=task, **body)
        report.result(told(answer), _without_version(answer))

    return run(report, work)


@tasks.command(name="list")
def list_tasks(where: ServerFlag, *, form: FormatFlag = "text") -> int:
    """List the tasks of a running server: where each is, its round, its clients and its store."""
    report = Report("tasks list", form)

    async def work() -> None:
        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import TasksAnswer
        from parties.operator.terminal import as_text, tasks_table

        found = (await operator_port(where).get("/tasks", TasksAnswer)).tasks
        troubles = [f"{row.name}: {row.explanation}" for row in found if row.explanation]
        report.result("\n".join([as_text(tasks_table(found)), *troubles]), {"tasks": found})

    return run(report, work)


@tasks.command
def drain(where: ServerFlag, name: str, *, token_file: TokenFlag = None, form: FormatFlag = "text") -> int:
    """End a task while the others run on: its running round ends or is parked, and its clients are told to come back.

    This waits until the task has ended; interrupted, it is drained all the same.

    Parameters
    ----------
    name:
        The task's name.
    """
    return _change_task("drain", where, name, token_file, form)


@tasks.command
def start(where: ServerFlag, name: str, *, token_file: TokenFlag = None, form: FormatFlag = "text") -> int:
    """Start a task that was drained, is over or has failed, with what its table in the server's file says now.

    Parameters
    ----------
    name:
        The task's name.
    """
    return _change_task("start", where, name, token_file, form)


def _change_task(change: str, where: ServerFlag, name: str, token_file: TokenFlag, form: Format) -> int:
    report = Report(f"tasks {change}", form)

    async def work() -> None:
        import trio

        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import TasksAnswer

        port = operator_port(where, token_file)
        answer = await port.change("POST", f"/tasks/{change}", TasksAnswer, task=name)
        while (row := _row_of(answer, name)).state in ("starting", "draining"):
            await trio.sleep(TASK_PERIOD)
            answer = await port.get("/tasks", TasksAnswer)
        if row.state == "failed":
            raise FslError(f"task {name!r} has failed: {row.explanation}")
        report.result(f"task {name!r} is {row.state}", row)

    return run(report, work)


def _row_of(answer: TasksAnswer, name: str) -> TaskRow:
    """A task of an answer.

    Raises:
        MisuseError: it has been removed meanwhile.
    """
    for row in answer.tasks:
        if row.name == name:
            return row
    raise MisuseError(f"the server has no task {name!r} any more")


def log_level(where: ServerFlag, level: str, *, token_file: TokenFlag = None, form: FormatFlag = "text") -> int:
    """Change the log level of a running server, until it is restarted.

    Parameters
    ----------
    level:
        The lowest level that is logged: debug, info, warning or error.
    """
    report = Report("log-level", form)

    async def work() -> None:
        from parties.deployment.operator_port import operator_port
        from parties.operator.answers import LogLevel

        answer = await operator_port(where, token_file).change("PUT", "/log-level", LogLevel, level=level)
        report.result(f"logs from level {answer.level} on", _without_version(answer))

    return run(report, work)


def _checked(number: int) -> int:
    if not 1 <= number < 10**9:
        raise MisuseError(f"rounds are numbered from 1, there is no round {number}")
    return number


def _without_version(answer: Aborting | Closing | Drawing | LogLevel) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__ if name != "version"}
