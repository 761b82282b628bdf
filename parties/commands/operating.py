"""`status`, `rounds`, `tasks` and `log-level`: what an operator asks of a running server."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from fsl_async.errors import FslError, MisuseError
from parties.commands.report import Report, reported

if TYPE_CHECKING:
    from parties.operator.answers import Aborting, Closing, Drawing, LogLevel, TaskRow, TasksAnswer
    from parties.operator.queries import OperatorPort


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


@reported("status")
async def status(report: Report, where: ServerFlag, *, once: bool = False, task: TaskFlag = "") -> None:
    """Show the status of a running server, continuously when in a terminal.

    Parameters
    ----------
    once:
        Show it once and end, as is always done where stdout is not a terminal, or with --format json.
    """
    from rich.console import Console

    from parties.operator.answers import RoundsAnswer, StatusAnswer
    from parties.operator.terminal import PAST_SHOWN, as_text, status_screen, watch

    port = _port(where)
    if not once and report.form == "text" and sys.stdout.isatty():
        with suppress(KeyboardInterrupt):  # how one leaves a live view
            await watch(port, Console(), task)
        return
    now = await port.get("/status.json", StatusAnswer, task=task)
    past = (await port.get(f"/rounds.json?last={PAST_SHOWN}", RoundsAnswer, task=task)).rounds
    report.result(as_text(status_screen(now, past)), now)


@rounds.command(name="list")
@reported("rounds list")
async def list_rounds(
    report: Report, where: ServerFlag, *, last: int = 50, before: int = 10**9 - 1, task: TaskFlag = ""
) -> None:
    """List the latest settled rounds and the running one.

    Parameters
    ----------
    last:
        How many rounds at most, from 1 to 1,000.
    before:
        List only rounds with a smaller number than this; use it to page back.
    """
    from parties.operator.answers import MOST_ROUNDS, RoundsAnswer, StatusAnswer
    from parties.operator.terminal import as_text, rounds_table

    if not 1 <= last <= MOST_ROUNDS:
        raise MisuseError(
            f"last: from 1 to {MOST_ROUNDS:,} rounds can be listed, not {last:,}; --before goes back page by page"
        )
    port = _port(where)
    running = (await port.get("/status.json", StatusAnswer, task=task)).round
    listing = f"/rounds.json?last={last}&before={_checked(before)}"
    past = (await port.get(listing, RoundsAnswer, task=task)).rounds
    text = as_text(rounds_table(past)) if past else "no round is settled yet"
    text += f"\nround {running.number} is running: {running.step}, {running.state}" if running else ""
    report.result(text, {"rounds": past, "running": running})


@rounds.command
@reported("rounds show")
async def show(report: Report, where: ServerFlag, number: int, *, task: TaskFlag = "") -> None:
    """Show a settled round: who was counted, who was not and why.

    Parameters
    ----------
    number:
        The round's number.
    """
    from parties.operator.answers import RoundAnswer
    from parties.operator.terminal import as_text, round_screen

    past = await _port(where).get(f"/rounds/{_checked(number)}.json", RoundAnswer, task=task)
    report.result(as_text(round_screen(past)), past)


@rounds.command
@reported("rounds abort")
async def abort(
    report: Report, where: ServerFlag, number: int, *, because: str, token_file: TokenFlag = None, task: TaskFlag = ""
) -> None:
    """Abort the running round on both servers. Nothing of it is revealed, and clients continue with the next round.

    Parameters
    ----------
    number:
        The number of the running round; no other round is aborted if that one has ended by now.
    because:
        The reason, which the other server and the clients are told.
    """
    answer = await _change_round("abort", where, number, token_file, task, because=because)
    report.result(f"round {number} is aborted: {because}", _without_version(answer))


@rounds.command
@reported("rounds close")
async def close(
    report: Report, where: ServerFlag, number: int, *, token_file: TokenFlag = None, task: TaskFlag = ""
) -> None:
    """Close the open round on both servers, with the clients that have submitted. Those that have not are too late.

    Parameters
    ----------
    number:
        The number of the open round; one that has closed by now is left as it is.
    """
    answer = await _change_round("close", where, number, token_file, task)
    report.result(
        f"round {number} is closed; submissions at this server: {answer.submissions}", _without_version(answer)
    )


@rounds.command
@reported("rounds draw")
async def draw(
    report: Report, where: ServerFlag, number: int, *, token_file: TokenFlag = None, task: TaskFlag = ""
) -> None:
    """Let no more clients ask to take part in a round, and draw of those that have; the other server follows.

    Parameters
    ----------
    number:
        The number of the round that is gathering clients.
    """
    answer = await _change_round("draw", where, number, token_file, task)
    drawn = f"the clients of round {number} are drawn from those that have asked both servers"
    report.result(f"{drawn}; {answer.asked} have asked this one", _without_version(answer))


async def _change_round(
    change: Literal["abort", "close", "draw"], where: str, number: int, token_file: Path | None, task: str, **body: str
) -> Any:
    """Have a server change a round, and return its answer."""
    from parties.operator.answers import Aborting, Closing, Drawing

    kinds: dict[str, type[Aborting | Closing | Drawing]] = {"abort": Aborting, "close": Closing, "draw": Drawing}
    port = _port(where, token_file)
    return await port.change("POST", f"/rounds/{_checked(number)}/{change}", kinds[change], task=task, **body)


@tasks.command(name="list")
@reported("tasks list")
async def list_tasks(report: Report, where: ServerFlag) -> None:
    """List the tasks of a running server: where each is, its round, its clients and its store."""
    from parties.operator.answers import TasksAnswer
    from parties.operator.terminal import as_text, tasks_table

    found = (await _port(where).get("/tasks", TasksAnswer)).tasks
    troubles = [f"{row.name}: {row.explanation}" for row in found if row.explanation]
    report.result("\n".join([as_text(tasks_table(found)), *troubles]), {"tasks": found})


@tasks.command
@reported("tasks drain")
async def drain(report: Report, where: ServerFlag, name: str, *, token_file: TokenFlag = None) -> None:
    """End a task while the others run on: its running round ends or is parked, and its clients are told to come back.

    This waits until the task has ended; interrupted, it is drained all the same.

    Parameters
    ----------
    name:
        The task's name.
    """
    await _change_task(report, "drain", where, name, token_file)


@tasks.command
@reported("tasks start")
async def start(report: Report, where: ServerFlag, name: str, *, token_file: TokenFlag = None) -> None:
    """Start a task that was drained, is over or has failed, with what its table in the server's file says now.

    Parameters
    ----------
    name:
        The task's name.
    """
    await _change_task(report, "start", where, name, token_file)


async def _change_task(report: Report, change: str, where: str, name: str, token_file: Path | None) -> None:
    import trio

    from parties.operator.answers import TasksAnswer

    port = _port(where, token_file)
    answer = await port.change("POST", f"/tasks/{change}", TasksAnswer, task=name)
    while (row := _row_of(answer, name)).state in ("starting", "draining"):
        await trio.sleep(TASK_PERIOD)
        answer = await port.get("/tasks", TasksAnswer)
    if row.state == "failed":
        raise FslError(f"task {name!r} has failed: {row.explanation}")
    report.result(f"task {name!r} is {row.state}", row)


def _row_of(answer: TasksAnswer, name: str) -> TaskRow:
    """A task of an answer.

    Raises:
        MisuseError: it has been removed meanwhile.
    """
    for row in answer.tasks:
        if row.name == name:
            return row
    raise MisuseError(f"the server has no task {name!r} any more")


@reported("log-level")
async def log_level(report: Report, where: ServerFlag, level: str, *, token_file: TokenFlag = None) -> None:
    """Change the log level of a running server, until it is restarted.

    Parameters
    ----------
    level:
        The lowest level that is logged: debug, info, warning or error.
    """
    from parties.operator.answers import LogLevel

    answer = await _port(where, token_file).change("PUT", "/log-level", LogLevel, level=level)
    report.result(f"logs from level {answer.level} on", _without_version(answer))


def _port(where: str, token_file: Path | None = None) -> OperatorPort:
    from parties.deployment.operator_port import operator_port

    return operator_port(where, token_file)


def _checked(number: int) -> int:
    if not 1 <= number < 10**9:
        raise MisuseError(f"rounds are numbered from 1, there is no round {number}")
    return number


def _without_version(answer: Aborting | Closing | Drawing | LogLevel) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in answer.__struct_fields__ if name != "version"}
