"""The operator's view in a terminal: the contents of the status page as text, drawn with rich.

Rules: text that comes from the server is shown literally; it is never interpreted as markup or as an escape sequence.
The words and the units are the page's: three steps, and seconds in every column of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fsl_async.counting import count_of
from fsl_async.errors import ChannelError
from fsl_async.foreign_text import printable
from parties.operator.answers import Attention, RoundAnswer, RoundsAnswer, StatusAnswer, TaskRow
from parties.operator.queries import OperatorPort
from parties.operator.recent_problems import Problem
from parties.status import EngineStatus, RoundStatus, RoundSummary

PERIOD = 0.5
PAST_SHOWN = 8
PROBLEMS_SHOWN = 5
STEPS = ("collect", "compute", "done")
COLLECTS = {
    "ssa": "clients send their submissions",
    "psr": "clients retrieve rows",
    "psu": "clients send their rows, hidden, and the servers will learn the union",
}
COMPUTES = {
    "ssa": "both servers agree on who is counted, and add up",
    "psr": "both servers close the round",
    "psu": "both servers find the union of all clients' rows",
}


async def watch(port: OperatorPort, console: Console, task: str = "") -> None:
    """Show the status of a task until cancelled; continues through restarts of the server.

    Raises:
        ChannelError: the server cannot be reached when this starts.
    """
    status = await port.get("/status.json", StatusAnswer, task=task)
    rounds = await port.get(f"/rounds.json?last={PAST_SHOWN}", RoundsAnswer, task=task)
    with Live(status_screen(status, rounds.rounds), console=console, auto_refresh=False) as live:
        while True:
            try:
                fresh = await port.get("/status.json", StatusAnswer, task=task)
                if (fresh.rounds_done, fresh.rounds_aborted) != (status.rounds_done, status.rounds_aborted):
                    rounds = await port.get(f"/rounds.json?last={PAST_SHOWN}", RoundsAnswer, task=task)
                status, note = fresh, ""
            except ChannelError:
                note = "the server does not answer; this is its last known status, and it is asked again"
            live.update(status_screen(status, rounds.rounds, note), refresh=True)
            await trio.sleep(PERIOD)


def as_text(screen: RenderableType, width: int = 100) -> str:
    """A screen as plain text."""
    console = Console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(screen)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def status_screen(status: StatusAnswer, rounds: Sequence[RoundSummary], note: str = "") -> RenderableType:
    """A server's status."""
    parts: list[RenderableType] = [_head(status), *map(_attention, status.attention), _round_panel(status)]
    parts.append(_identities(status))
    parts.extend(_bulk(status))
    if rounds:
        parts.append(rounds_table(rounds[-PAST_SHOWN:]))
    parts.extend(_problem_line(problem) for problem in status.troubles[:PROBLEMS_SHOWN])
    if note:
        parts.append(Text(note, style="bold yellow"))
    return Group(*parts)


def rounds_table(rounds: Sequence[RoundSummary]) -> Table:
    """Settled rounds, one per line."""
    table = Table(
        box=None,
        pad_edge=False,
        header_style="dim",
        caption=f"collect, compute, wait (for the other server), all and evaluate: in seconds; settled: {_zone()}",
        caption_justify="left",
    )
    for name in ("round", "runs", "counted", "not", "collect", "compute", "wait", "all", "evaluate", "settled"):
        table.add_column(name, justify="left" if name in ("runs", "settled") else "right", no_wrap=True)
    table.add_column("ended")
    columns = [_figures([_spans(past)[column] for past in rounds]) for column in range(5)]
    for row, past in enumerate(rounds):
        ended = Text("done")
        if past.ended != "done":
            what = "sum refused" if past.ended == "refused" else past.ended
            ended = Text(f"{what}: {printable(past.explanation)}", style="red")
        not_counted = sum(past.not_counted.values())
        spans = (column[row] for column in columns)
        figures = (printable(past.protocol), past.counted, not_counted, *spans)
        table.add_row(*(Text(str(cell)) for cell in (past.number, *figures, _moment(past.settled_at))), ended)
    return table


def tasks_table(tasks: Sequence[TaskRow]) -> Table:
    """The tasks of a process, one per line."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("task", "is", "round", "peer", "clients", "done", "aborted", "store"):
        table.add_column(name, justify="right" if name in ("clients", "done", "aborted") else "left")
    for row in tasks:
        state = printable(row.round_state if row.round is None else f"{row.round}: {row.round_state}")
        peer = "connected" if row.peer_connected else "not connected"
        style = {"running": "green", "failed": "bold red"}.get(row.state, "yellow")
        table.add_row(
            Text(printable(row.name)),
            Text(row.state, style=style),
            Text(state),
            Text(peer),
            *(Text(f"{count:,}") for count in (row.clients_connected, row.rounds_done, row.rounds_aborted)),
            Text(printable(row.store)),
        )
    return table


def _compute(engine: EngineStatus) -> Iterator[RenderableType]:
    """The workers of a cluster, and what waits for them."""
    if not engine.connected:
        yield Text(f"the cluster at {printable(engine.where)} is away: rounds wait for it", style="bold red")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("worker", "host", "adding", "held"):
        table.add_column(name, justify="left" if name in ("worker", "host") else "right", no_wrap=True)
    for worker in engine.workers:
        figures = (f"{worker.adding:,}", f"{worker.held:,}")
        table.add_row(Text(printable(worker.name)), Text(printable(worker.host)), *map(Text, figures))
    yield table if engine.workers else Text("no worker is there: rounds wait for one", style="bold red")
    words = [
        count_of(engine.waiting, "submission waits for a worker", "submissions wait for a worker"),
        count_of(engine.open, "partial sum is open", "partial sums are open"),
        count_of(engine.sealed, "has come", "have come"),
        count_of(engine.given_again, "submission was given out again", "submissions were given out again"),
    ]
    yield Text(f"{engine.engine} at {printable(engine.where)}: {', '.join(words)}", style="dim")


def _bulk(status: StatusAnswer) -> Iterator[RenderableType]:
    """Where clients' bulk is, and what computes, where that is not the server's own process."""
    if (blobs := status.blobs) is not None:
        free = "" if blobs.free_bytes is None else f", {_size(blobs.free_bytes)} free"
        erasing = f", {blobs.to_erase:,} to be erased" if blobs.to_erase else ""
        yield Text(f"blobs in {printable(blobs.where)}: {_size(blobs.stored_bytes)}{free}{erasing}", style="dim")
    if (engine := status.engine) is not None:
        yield from _compute(engine)


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count:,} B"


def _spans(past: RoundSummary) -> tuple[float, ...]:
    times = past.times
    return times.collecting, times.computing, times.waiting, past.seconds, past.evaluating


def _figures(column: Sequence[float]) -> list[str]:
    """Seconds as text, all with as many decimals as the largest of them deserves."""
    most = max(column)
    decimals = 0 if most >= 100 else 1 if most >= 10 else 2
    return [f"{seconds:,.{decimals}f}" for seconds in column]


def round_screen(past: RoundAnswer) -> RenderableType:
    """One settled round, with clients' names."""
    counted = ", ".join(past.clients) or "nobody"
    lines = [Text("counted: " + printable(counted))]
    lines.extend(
        Text(f"not counted: {printable(client)} ({printable(reason)})") for client, reason in past.excluded.items()
    )
    lines.extend(
        Text(f"model: {printable(name)} {printable(digest)}", style="dim") for name, digest in past.model.items()
    )
    return Group(rounds_table([past]), *lines)


def _head(status: StatusAnswer) -> Text:
    head = Text.assemble((printable(status.server), "bold"), f" {printable(status.task)}  ")
    state, style = ("connected", "green") if status.peer_connected else ("not connected", "bold red")
    head.append(f"{printable(status.peer)} {state}", style=style)
    head.append(f"  {status.clients_present:,} of {status.clients_known:,} clients connected")
    head.append(f"  {status.rounds_done:,} rounds done, {status.rounds_aborted:,} aborted")
    head.append(f"  {status.resident_bytes / 2**20:,.0f} MiB")
    for note in status.notes:
        words = f"\n{printable(note.title)}: {printable(note.text)} ({printable(note.more)})"
        head.append(words, style="bold red" if note.poor else "")
    return head


def _attention(one: Attention) -> Text:
    """What waits for what, since when, and what to do."""
    since = "" if one.since is None else f", since {_moment(one.since)}"
    style = "bold red" if one.poor else "yellow"
    head = Text(f"! {printable(one.about)}{since}: ", style=style)
    return head.append(printable(f"{one.text} {one.remedy} ({one.page})"), style="")


def _identities(status: StatusAnswer) -> Text:
    """Who is who, and what both operators can compare over the telephone."""
    lines = []
    for name, place in zip(("S0", "S1"), status.places, strict=True):
        is_here = name == status.server
        release = status.release if is_here else status.peer_release
        parts = [f"{name}{' (this one)' if is_here else ''}", place.operator, place.address]
        parts += [f"release {release}"] if release else []
        lines.append(", ".join(printable(part) for part in parts if part))
    run, prints = status.round, status.fingerprints
    model = f", model {prints.model}" if prints.model else ""
    lines.append(printable(f"the same on both servers: task {prints.task}{model}"))
    lines += [f"{' ' * 26}round {run.number}, with all of it: {printable(run.fingerprint)}"] if run else []
    return Text("\n".join(lines), style="dim")


def _round_panel(status: StatusAnswer) -> Panel:
    run = status.round
    if run is None:
        last = status.last
        is_calm = last is not None and not (last.ended == "done" and status.attention)
        lines = [_steps(2, last.ended) if last and is_calm else _steps(None), Text(_between(status))]
        lines.append(Text(printable(status.waiting_for), style="dim"))
        return Panel(Group(*lines), title="between rounds", title_align="left")
    title = Text(f"round {run.number} ({printable(run.protocol)})", style="bold")
    words = (COLLECTS if run.step == "collect" else COMPUTES).get(run.protocol, "")
    since = f"for {_clock(status.time - run.since)}, since {_moment(run.since)} {_zone()}"
    steps = _steps(STEPS.index(run.step)).append(f"   {since}", style="dim")
    waits = f"waiting for {printable(run.waiting_for)}; " if run.waiting_for else ""
    below = Text(f"{waits}the machine's state: {printable(run.state)}", style="dim")
    shown: list[RenderableType] = [steps, Text(words), _progress(run), _times(run, status.peer), below]
    return Panel(Group(*shown), title=title, title_align="left", subtitle=_closing(run, status.time))


def _progress(run: RoundStatus) -> RenderableType:
    """What has come in: submissions as bars; of a round of retrievals, how many were answered."""
    if run.protocol == "psr":
        return Text(f"{run.retrievals:,} retrievals answered")
    bars = Table.grid(padding=(0, 1))
    bars.add_column(width=11)
    bars.add_column(ratio=1)
    bars.add_column()
    needed = f", {run.minimum:,} needed" if run.submissions < run.minimum else ""
    submissions = f"{run.submissions:,}{needed}, at most {run.maximum:,}"
    bars.add_row("submissions", ProgressBar(total=_scale(run), completed=run.submissions), submissions)
    counted = f"{run.evaluated:,} of {run.submissions:,}"
    bars.add_row("evaluated", ProgressBar(total=max(run.submissions, 1), completed=run.evaluated), counted)
    bars.expand = True
    return bars


def _steps(now: int | None, end: str = "done") -> Text:
    """The three steps, with a mark at those that are over and at the present one; None: none has begun.

    Args:
        now: the present step's number.
        end: how the round ended, in place of the last step.
    """
    text = Text()
    for index, step in enumerate(STEPS):
        is_over, is_now = now is not None and index < now and end != "aborted", index == now
        last = step == "done"
        mark = "✓" if is_over or (is_now and last and end == "done") else "●" if is_now else "○"
        text.append(f"{' → ' if index else ''}{mark} {end if last else step}", style="bold" if is_now else "")
    return text


def _between(status: StatusAnswer) -> str:
    last = status.last
    ended = {"done": "is done", "aborted": "was aborted", "refused": "is over, and its sum was refused"}
    before = f"round {last.number} {ended[last.ended]}; " if last else ""
    if status.stage == "away":
        return f"{before}the task is not served now"
    if status.stage == "resting":
        return f"{before}no further round opens"
    if status.stage == "drawing":
        return f"{before}clients ask to take part in round {status.number}: {status.asked:,} so far"
    return f"{before}both servers prepare round {status.number}"


def _times(run: RoundStatus, peer: str) -> Text:
    times = run.times
    parts = {"collecting": "collecting", "computing": "computing", "waiting": f"waiting for {printable(peer)}"}
    spans = [f"{words} {_span(getattr(times, name))} s" for name, words in parts.items()]
    spans += [f"interrupted {_span(times.interrupted)} s"] if times.interrupted else []
    return Text(f"{', '.join(spans)}; evaluation took {_span(run.evaluating)} s of it")


def _scale(run: RoundStatus) -> int:
    """The bar's full length: the maximum, or twice the present number if the maximum is far away."""
    reach = max(run.submissions, run.minimum, 1)
    return int(run.maximum if run.maximum <= 4 * reach else 2 * reach)


def _closing(run: RoundStatus, now: float) -> str | None:
    if run.state != "Open":
        return None
    if run.closes_at is None:
        return "closes when enough clients are in"
    return f"closes in {_clock(run.closes_at - now)}"


def _problem_line(problem: Problem) -> Text:
    style = {"error": "bold red", "warning": "yellow"}.get(problem.level, "dim")
    often = f" ×{problem.times}" if problem.times > 1 else ""
    about = Text(f"{_moment(problem.last_at)} {printable(problem.about)}{often}: ", style=style)
    return about.append(printable(problem.explanation), style="")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _span(seconds: float) -> str:
    return f"{seconds:,.2f}" if seconds < 100 else f"{seconds:,.0f}"


def _zone() -> str:
    return datetime.now().astimezone().strftime("%Z")


def _moment(stamp: float) -> str:
    return datetime.fromtimestamp(stamp).astimezone().strftime("%m-%d %H:%M:%S")
