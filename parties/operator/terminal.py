"""The operator's view in a terminal: the contents of the status page as text, drawn with rich.

Rules: text that comes from the server is shown literally; it is never interpreted as markup or as an escape sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fsl_async.errors import ChannelError
from fsl_async.foreign_text import printable
from parties.operator.queries import OperatorPort
from parties.operator.response_types import (
    ProblemView,
    RoundsView,
    RoundView,
    RunningView,
    StatusView,
    SummaryView,
    TaskRow,
)

__all__ = ["as_text", "round_screen", "rounds_table", "status_screen", "tasks_table", "watch"]

PERIOD = 0.5
PAST_SHOWN = 8
PROBLEMS_SHOWN = 5
NO_LIMIT = 2**31


async def watch(port: OperatorPort, console: Console, task: str = "") -> None:
    """Show the status of a task until cancelled; continues through restarts of the server.

    Raises:
        ChannelError: the server cannot be reached when this starts.
    """
    status = await port.get("/status.json", StatusView, task=task)
    rounds = await port.get(f"/rounds.json?last={PAST_SHOWN}", RoundsView, task=task)
    with Live(status_screen(status, rounds["rounds"]), console=console, auto_refresh=False) as live:
        while True:
            try:
                fresh = await port.get("/status.json", StatusView, task=task)
                if fresh["rounds"] != status["rounds"]:
                    rounds = await port.get(f"/rounds.json?last={PAST_SHOWN}", RoundsView, task=task)
                status, note = fresh, ""
            except ChannelError:
                note = "the server does not answer; this is its last known status, and it is asked again"
            live.update(status_screen(status, rounds["rounds"], note), refresh=True)
            await trio.sleep(PERIOD)


def as_text(screen: RenderableType, width: int = 100) -> str:
    """A screen as plain text."""
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(screen)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def status_screen(status: StatusView, rounds: Sequence[SummaryView], note: str = "") -> RenderableType:
    """A server's status."""
    parts: list[RenderableType] = [_head(status), _round_panel(status)]
    if rounds:
        parts.append(rounds_table(rounds[-PAST_SHOWN:]))
    parts.extend(_problem_line(problem) for problem in status["troubles"][:PROBLEMS_SHOWN])
    if note:
        parts.append(Text(note, style="bold yellow"))
    return Group(*parts)


def rounds_table(rounds: Sequence[SummaryView]) -> Table:
    """Settled rounds, one per line."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("round", "protocol", "counted", "not", "seconds", "evaluation", "settled"):
        table.add_column(name, justify="left" if name in ("protocol", "settled") else "right", no_wrap=True)
    table.add_column("ended")
    for past in rounds:
        ended = Text("done")
        for how in (name for name in ("aborted", "refused") if past[name]):
            ended = Text(f"{'sum ' if how == 'refused' else ''}{how}: {printable(past[how])}", style="red")
        not_counted = sum(past["not_counted"].values())
        figures = (past["protocol"], past["counted"], not_counted, _span(past["seconds"]), _span(past["evaluating"]))
        table.add_row(*(Text(str(cell)) for cell in (past["number"], *figures, _moment(past["settled_at"]))), ended)
    return table


def tasks_table(tasks: Sequence[TaskRow]) -> Table:
    """The tasks of a process, one per line."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("task", "is", "round", "peer", "clients", "done", "aborted", "store"):
        table.add_column(name, justify="right" if name in ("clients", "done", "aborted") else "left")
    for row in tasks:
        state = printable(row["round_state"] if row["round"] is None else f"{row['round']}: {row['round_state']}")
        peer = "connected" if row["peer_connected"] else "not connected"
        style = {"running": "green", "failed": "bold red"}.get(row["state"], "yellow")
        table.add_row(
            Text(printable(row["name"])),
            Text(row["state"], style=style),
            Text(state),
            Text(peer),
            *(Text(f"{row[key]:,}") for key in ("clients_connected", "rounds_done", "rounds_aborted")),
            Text(printable(row["store"])),
        )
    return table


def round_screen(past: RoundView) -> RenderableType:
    """One settled round, with clients' names."""
    counted = ", ".join(past["clients"]) or "nobody"
    lines = [Text("counted: " + printable(counted))]
    lines.extend(
        Text(f"not counted: {printable(client)} ({printable(reason)})") for client, reason in past["excluded"].items()
    )
    lines.extend(
        Text(f"model: {printable(name)} {printable(digest)}", style="dim") for name, digest in past["model"].items()
    )
    return Group(rounds_table([past]), *lines)


def _head(status: StatusView) -> Text:
    peer, clients = status["peer"], status["clients"]
    head = Text.assemble((printable(status["server"]), "bold"), f" {printable(status['task'])}  ")
    state, style = ("connected", "green") if peer["connected"] else ("not connected", "bold red")
    head.append(f"{printable(peer['name'])} {state}", style=style)
    done, aborted = status["rounds"]["done"], status["rounds"]["aborted"]
    memory = status["memory"]["resident"] / 2**20
    head.append(f"  {clients['connected']} clients connected  {done} rounds done, {aborted} aborted  {memory:,.0f} MiB")
    return head


def _round_panel(status: StatusView) -> Panel:
    run = status["round"]
    if run is None:
        return Panel(Text(printable(status["waiting_for"])), title="between rounds", title_align="left")
    title = Text(f"round {run['number']} ({printable(run['protocol'])}): {printable(run['state'])}", style="bold")
    bars = Table.grid(padding=(0, 1))
    bars.add_column(width=11)
    bars.add_column(ratio=1)
    bars.add_column()
    most = _scale(run)
    bars.add_row("submissions", ProgressBar(total=most, completed=run["submissions"]), _submissions_text(run))
    counted = f"{run['evaluated']:,} of {run['submissions']:,}"
    bars.add_row("evaluated", ProgressBar(total=max(run["submissions"], 1), completed=run["evaluated"]), counted)
    bars.expand = True
    waits = Text(f"waiting for {printable(run['waiting_for'])}" if run["waiting_for"] else "", style="dim")
    return Panel(Group(bars, waits), title=title, title_align="left", subtitle=_closing(run, status["time"]))


def _submissions_text(run: RunningView) -> str:
    needed = f", {run['minimum']:,} needed" if run["submissions"] < run["minimum"] else ""
    return f"{run['submissions']:,}{needed}, at most {run['maximum']:,}"


def _scale(run: RunningView) -> int:
    """The bar's full length: the maximum, or twice the present number if the maximum is far away."""
    reach = max(run["submissions"], run["minimum"], 1)
    return int(run["maximum"] if run["maximum"] <= 4 * reach else 2 * reach)


def _closing(run: RunningView, now: float) -> str | None:
    if run["state"] != "Open":
        return None
    if run["closes_at"] is None:
        return "closes when enough clients are in"
    return f"closes in {_clock(run['closes_at'] - now)}"


def _problem_line(problem: ProblemView) -> Text:
    style = {"error": "bold red", "warning": "yellow"}.get(problem["level"], "dim")
    often = f" ×{problem['times']}" if problem["times"] > 1 else ""
    about = Text(f"{_moment(problem['last_at'])} {printable(problem['about'])}{often}: ", style=style)
    return about.append(printable(problem["explanation"]), style="")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _span(seconds: float) -> str:
    return f"{seconds:,.2f}" if seconds < 100 else f"{seconds:,.0f}"


def _moment(stamp: float) -> str:
    return datetime.fromtimestamp(stamp).astimezone().strftime("%m-%d %H:%M:%S")
