"""What happened in a world as a sequence chart: parties side by side, time downwards, an arrow for every message.

    print(Chart.of(world))                                            # text, 100 columns wide
    print(Chart.of(world).only(number=2, parties=["S0", "S1"]))       # one round, two parties
    Path("round.svg").write_text(Chart.of(world).last(60).svg())      # for documents

S0 stands on the left, S1 on the right and the clients between them, so that every message begins or ends at an edge,
where its name and size stand. An arrow stands at the time at which its message was sent; the network may deliver it
later, or never. The line of a process that does not run is interrupted.
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
from parties.testing.story import Began, Entry, Failed, Killed, Left, Told

if TYPE_CHECKING:
    from parties.testing.world import World

__all__ = ["Chart"]


@dataclass(frozen=True)
class Chart:
    """A sequence chart, or a part of one.

    Attributes:
        parties: its columns, from left to right.
        rows: what happened, in order.
        omitted: how many rows there are before the first.
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
        """The chart of what is told, in order."""
        entries = list(story)
        rows = tuple(_rows(entries))
        clients = sorted({name for row in rows for name in row.parties}.difference(SERVERS))
        return Chart((SERVERS[0], *clients, SERVERS[1]), rows)

    def only(
        self, *, number: int = 0, parties: Collection[str] = (), begin: float = 0.0, end: float = float("inf")
    ) -> Chart:
        """A part of it.

        Args:
            number: of a round: what names it, and what happens meanwhile that names no round; 0: of all rounds.
            parties: the columns to show, and what happens between them; all where none is named.
            begin: seconds after the world's beginning.
            end: likewise.
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
        """Its last rows."""
        left_out = max(0, len(self.rows) - count)
        return replace(self, rows=self.rows[left_out:], omitted=self.omitted + left_out)

    def text(self, width: int = 100) -> str:
        """As text, so many columns wide; wider where the clients have no room."""
        return chart_text.drawn(self.parties, self.rows, self.omitted, width)

    def svg(self, title: str = "Sequence chart") -> str:
        """As a picture for documents, readable on light and dark pages; needs no other file."""
        return chart_svg.drawn(self.parties, self.rows, self.omitted, title)

    def __str__(self) -> str:
        return self.text()

    def _of_round(self, number: int) -> tuple[Row, ...]:
        places = [place for place, row in enumerate(self.rows) if row.number == number]
        during = self.rows[places[0] : places[-1] + 1] if places else ()
        return tuple(row for row in during if row.number in (0, number))


def _rows(entries: list[Entry]) -> Iterator[Row]:
    numbers = {entry.told.round_id: entry.told.number for entry in entries if isinstance(entry.told, RoundOpened)}
    running: frozenset[str] = frozenset()
    for entry in entries:
        if isinstance(entry.told, Killed | Failed | Left):
            running -= {entry.party}
        elif isinstance(entry.told, Began | Note):
            running |= {entry.party}
        if shown(entry.told):
            yield Row(entry.at, _number(entry.told, numbers), running, _drawn(entry))


def _drawn(entry: Entry) -> Arrow | Mark:
    return arrow(entry.told) if isinstance(entry.told, Note) else mark(entry.party, entry.told)


def _number(told: Told, numbers: Mapping[bytes, int]) -> int:
    """The round that is named; 0 where none is."""
    about = told.message if isinstance(told, Note) else told
    number = getattr(about, "number", numbers.get(getattr(about, "round_id", b""), 0))
    return int(number)
