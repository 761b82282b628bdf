"""What happened in a world as a sequence chart: parties side by side, time downwards, an arrow for every message.

    print(Chart.of(world))                                            # text, 100 columns wide
    print(Chart.of(world).only(number=2, parties=["S0", "S1"]))       # one round, two parties
    Path("round.svg").write_text(Chart.of(world).last(60).svg())      # for documents

In a world of rounds S0 is on the left, S1 on the right and the clients are between them, so that every message begins
or ends at an edge, where its name and size are shown; in a laboratory parties stand in the order in which they start.
An arrow is at the time at which its message was sent; the network may deliver it later. One that ends in × was lost:
its connection broke, or a party was dead. The line of a process is interrupted while it does not run.

`save` writes several charts into one file; an HTML page needs no other file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Protocol

from fsl_async.wire.codec import encode
from parties.testing.chart import svg as chart_svg
from parties.testing.chart import text as chart_text
from parties.testing.chart.legend import Legend
from parties.testing.chart.rows import Arrow, Row, plain
from parties.testing.story import Began, Entry, Failed, Killed, Left, Lost
from parties.watch import Note

STYLE = """
:root { color-scheme: light dark; }
body { margin: 2rem; font: 16px/1.5 system-ui, sans-serif; background: #ffffff; color: #1f2933; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
.chart { overflow-x: auto; }
@media (prefers-color-scheme: dark) { body { background: #0f1419; color: #e4e8ec; } }
"""


def page(title: str, pictures: Sequence[tuple[str, str]]) -> str:
    """The page.

    Args:
        title: the page's heading.
        pictures: for each chart its heading and its SVG; of a single one the heading is not repeated.
    """
    parts = [
        "<!doctype html>",
        '<html lang="en">',
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_safe(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<h1>{_safe(title)}</h1>",
    ]
    for heading, picture in pictures:
        if heading != title:
            parts.append(f"<h2>{_safe(heading)}</h2>")
        parts.append(f'<div class="chart" tabindex="0" role="region" aria-label="{_safe(heading)}">\n{picture}</div>')
    return "\n".join([*parts, "</html>", ""])


def _safe(text: str) -> str:
    return escape(plain(text))


_BULK_HEADER = 5


class Charted(Protocol):
    """What a chart is made of: a story, and how to call what happens in it."""

    @property
    def story(self) -> Sequence[Entry]:
        """What happened, in order."""

    @property
    def legend(self) -> Legend:
        """How to call it."""


@dataclass(frozen=True)
class Chart:
    """A sequence chart, or a part of one.

    Attributes:
        parties: the columns, from left to right.
        rows: what happened, in order.
        edges: the parties of which one takes part in every message; none if any two may talk.
        omitted: how many rows before the first one are left out.
    """

    parties: tuple[str, ...]
    rows: tuple[Row, ...]
    edges: tuple[str, ...] = ()
    omitted: int = 0

    @staticmethod
    def of(world: Charted) -> Chart:
        """The chart of a world or a laboratory so far."""
        return Chart.of_story(world.story, world.legend)

    @staticmethod
    def of_story(story: Iterable[Entry], legend: Legend) -> Chart:
        """The chart of a story."""
        entries = list(story)
        rows = tuple(_rows(entries, legend))
        parties = dict.fromkeys(name for row in rows for name in row.parties)
        return Chart(legend.columns(parties), rows, legend.edges)

    def only(
        self, *, number: int = 0, parties: Collection[str] = (), begin: float = 0.0, end: float = float("inf")
    ) -> Chart:
        """A part of the chart.

        Args:
            number: show only rows of this round, and rows of no round meanwhile; 0 for all rounds.
            parties: show only these columns, and what happens between them; empty for all.
            begin: show only rows from this time on, in seconds since the world began.
            end: show only rows up to this time, in seconds since the world began.
        """
        columns = tuple(name for name in self.parties if name in parties) if parties else self.parties
        rows = self._of_round(number) if number else self.rows
        return replace(
            self,
            parties=columns,
            rows=tuple(row for row in rows if begin <= row.at <= end and set(row.parties) <= set(columns)),
            omitted=0,
        )

    def last(self, count: int) -> Chart:
        """The last rows of the chart."""
        left_out = max(0, len(self.rows) - count)
        return replace(self, rows=self.rows[left_out:], omitted=self.omitted + left_out)

    def text(self, width: int = 100) -> str:
        """The chart as text of a width in columns; wider if the clients need more room."""
        return chart_text.drawn(self.parties, self.rows, self.edges, self.omitted, width)

    def svg(self, title: str = "Sequence chart") -> str:
        """The chart as an SVG picture, readable on light and dark pages; needs no other file."""
        return chart_svg.drawn(self.parties, self.rows, self.edges, self.omitted, title)

    def html(self, title: str = "Sequence chart") -> str:
        """The picture in a page of its own, for light and dark screens; needs no other file."""
        return page(title, [(title, self.svg(title))])

    def __str__(self) -> str:
        return self.text()

    def _of_round(self, number: int) -> tuple[Row, ...]:
        found = [index for index, row in enumerate(self.rows) if row.number == number]
        during = self.rows[found[0] : found[-1] + 1] if found else ()
        return tuple(row for row in during if row.number in (0, number))


def _rows(entries: Sequence[Entry], legend: Legend) -> Iterator[Row]:
    lost = {id(entry.event.note) for entry in entries if isinstance(entry.event, Lost)}
    running: frozenset[str] = frozenset()
    for entry, number in zip(entries, legend.numbers(entries), strict=True):
        match entry.event:
            case Lost():
                continue
            case Killed() | Failed() | Left():
                running -= {entry.party}
            case Began() | Note():
                running |= {entry.party}
        if isinstance(entry.event, Note):
            note, label = entry.event, legend.message(entry.event.message)
            size = sum(map(len, encode(note.message))) + note.bulk + (_BULK_HEADER if note.bulk else 0)
            yield Row(entry.at, number, running, Arrow(note.sender, note.receiver, label, size, id(note) in lost))
        elif legend.shown(entry.event):
            yield Row(entry.at, number, running, legend.mark(entry.party, entry.event))


def save(path: Path, charts: Sequence[tuple[str, Chart]]) -> list[Path]:
    """Write charts as the file's name says: text or a page with all of them, or one picture for each.

    Args:
        path: ends in .txt, .html or .svg; of several pictures, the second is in `name-2.svg`.
        charts: each with its heading.

    Returns:
        The files that were written.
    """
    match path.suffix:
        case ".svg":
            paths = [path, *(path.with_stem(f"{path.stem}-{number}") for number in range(2, len(charts) + 1))]
            for each, (name, chart) in zip(paths, charts, strict=False):
                each.write_text(chart.svg(name), encoding="utf-8")
            return paths[: len(charts)]
        case ".html":
            title = charts[0][0] if len(charts) == 1 else f"{len(charts)} sequence charts"
            written = page(title, [(name, chart.svg(name)) for name, chart in charts])
        case _:
            written = "\n\n".join(f"{plain(name)}\n\n{chart.text()}" for name, chart in charts) + "\n"
    path.write_text(written, encoding="utf-8")
    return [path]
