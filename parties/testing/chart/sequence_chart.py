"""What happened in a world as a sequence chart: parties side by side, time downwards, an arrow for every message.

    print(Chart.of(world))                                            # text, 100 columns wide
    print(Chart.of(world).only(number=2, parties=["S0", "S1"]))       # one round, two parties
    Path("round.svg").write_text(Chart.of(world).last(60).svg())      # for documents

S0 is on the left, S1 on the right and the clients are between them, so that every message begins or ends at an edge,
where its name and size are shown. An arrow is at the time at which its message was sent; the network may deliver it
later, or never. The line of a process is interrupted while it does not run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parties.events import RoundOpened
from parties.simulation.network import SERVERS, Note
from parties.testing.chart import svg as chart_svg
from parties.testing.chart import text as chart_text
from parties.testing.chart.labels import arrow, mark, shown
from parties.testing.chart.rows import Arrow, Mark, Row
from parties.testing.story import Began, Entry, Failed, Killed, Left, StoryEvent

if TYPE_CHECKING:
    from parties.testing.world import World

__all__ = ["Chart"]


@dataclass(frozen=True)
class Chart:
    """A sequence chart, or a part of one.

    Attributes:
        parties: the columns, from left to right.
        rows: what happened, in order.
        omitted: how many rows before the first one are left out.
    """

    parties: tuple[str, ...]
    rows: tuple[Row, ...]
    omitted: int = 0

    @staticmethod
    def of(world: World) -> Chart:
        """The chart of a world so far."""
        return Chart.of_story(world.story)

    @staticmethod
    def of_story(story: Iterable[Entry]) -> Chart:
        """The chart of a story."""
        entries = list(story)
        rows = tuple(_rows(entries))
        clients = sorted({name for row in rows for name in row.parties}.difference(SERVERS))
        return Chart((SERVERS[0], *clients, SERVERS[1]), rows)

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
        return chart_text.drawn(self.parties, self.rows, self.omitted, width)

    def svg(self, title: str = "Sequence chart") -> str:
        """The chart as an SVG picture, readable on light and dark pages; needs no other file."""
        return chart_svg.drawn(self.parties, self.rows, self.omitted, title)

    def __str__(self) -> str:
        return self.text()

    def _of_round(self, number: int) -> tuple[Row, ...]:
        found = [index for index, row in enumerate(self.rows) if row.number == number]
        during = self.rows[found[0] : found[-1] + 1] if found else ()
        return tuple(row for row in during if row.number in (0, number))


def _rows(entries: list[Entry]) -> Iterator[Row]:
    numbers = {entry.event.round_id: entry.event.number for entry in entries if isinstance(entry.event, RoundOpened)}
    running: frozenset[str] = frozenset()
    for entry in entries:
        if isinstance(entry.event, Killed | Failed | Left):
            running -= {entry.party}
        elif isinstance(entry.event, Began | Note):
            running |= {entry.party}
        if shown(entry.event):
            yield Row(entry.at, _number(entry.event, numbers), running, _drawn(entry))


def _drawn(entry: Entry) -> Arrow | Mark:
    return arrow(entry.event) if isinstance(entry.event, Note) else mark(entry.party, entry.event)


def _number(event: StoryEvent, numbers: Mapping[bytes, int]) -> int:
    """The number of the round that an event concerns; 0 if it concerns none."""
    about = event.message if isinstance(event, Note) else event
    number = getattr(about, "number", numbers.get(getattr(about, "round_id", b""), 0))
    return int(number)
