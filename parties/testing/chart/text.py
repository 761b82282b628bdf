"""Draws a sequence chart as text, for terminals and for the reports of failed tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from parties.testing.chart.rows import Arrow, Mark, Row, cut, size_text

LEFT = 12
"""The column of the first party's line; the time is to the left of it."""

EDGE = 25
"""The number of columns at either edge, where messages' names are shown."""

NARROWEST, WIDEST = 7, 12
"""The least and the greatest number of columns between two clients."""


def drawn(parties: Sequence[str], rows: Sequence[Row], edges: Collection[str], omitted: int, width: int) -> str:
    """The chart as text; lines have no trailing blanks."""
    places = _places(parties, width) if edges else _spread(parties, width)
    heading = _heading(places)
    lines = [heading]
    if omitted:
        lines.append(f"{'':>{LEFT}}({omitted} rows before)")
    lines += _body(places, rows, edges)
    return "\n".join(line.rstrip() for line in [*lines, heading])


def _places(parties: Sequence[str], width: int) -> dict[str, int]:
    """The column of each party's line."""
    right = width - 3
    if len(parties) <= 2:
        return dict(zip(parties, (LEFT, min(right, LEFT + 2 * EDGE)), strict=False))
    gaps = len(parties) - 3
    between = max(NARROWEST, min(WIDEST, (right - LEFT - 2 * EDGE) // max(gaps, 1))) if gaps else 0
    right = max(right, LEFT + 2 * EDGE + gaps * between)
    first = LEFT + (right - LEFT - gaps * between) // 2
    columns = (LEFT, *(first + place * between for place in range(gaps + 1)), right)
    return dict(zip(parties, columns, strict=True))


def _spread(parties: Sequence[str], width: int) -> dict[str, int]:
    """The column of each party's line, where a message may go between any two of them."""
    between = max(EDGE, min(2 * EDGE, (width - 3 - LEFT) // max(len(parties) - 1, 1)))
    return {name: LEFT + place * between for place, name in enumerate(parties)}


def _right(places: Mapping[str, int]) -> int:
    """The last column; what happens to a party that is alone stands to its right."""
    return max(places.values()) if len(places) > 1 else LEFT + 2 * EDGE


def _heading(places: Mapping[str, int]) -> str:
    columns = sorted(places.values())
    room = min((after - before for before, after in pairwise(columns)), default=WIDEST) - 1
    line = _Line(max(columns, default=0) + room)
    line.write(0, f"{'seconds':>{LEFT - 3}}")
    for name, column in places.items():
        label = cut(name, room)
        line.write(column - (len(label) - 1) // 2, label)
    return str(line)


def _body(places: Mapping[str, int], rows: Sequence[Row], edges: Collection[str]) -> Iterator[str]:
    before = ""
    for row in rows:
        line = _Line(_right(places) + 1)
        time = f"{row.at:{LEFT - 3}.3f}"
        line.write(0, time if time != before else "")
        before = time
        for name in row.running:
            if name in places:
                line.write(places[name], "│")
        if isinstance(row.drawn, Arrow):
            _draw_arrow(line, places, edges, row.drawn)
        else:
            _draw_mark(line, places, row.drawn)
        yield str(line)


def _draw_arrow(line: _Line, places: Mapping[str, int], edges: Collection[str], arrow: Arrow) -> None:
    source, target = places[arrow.sender], places[arrow.receiver]
    for column in range(min(source, target) + 1, max(source, target)):
        line.write(column, "┼" if line.at(column) == "│" else "─")
    line.write(source, "├" if source < target else "┤")
    head = "×" if arrow.lost else "►" if source < target else "◄"
    line.write(target - 1 if source < target else target + 1, head)
    at_receiver = arrow.receiver in edges and arrow.sender not in edges
    start, end = _stretch(places, *((target, source) if at_receiver else (source, target)))
    size = f" {size_text(arrow.size)} "
    label = f" {cut(arrow.label, end - start - 4 - len(size))}{size}"
    line.write(start + 1 + (end - start - 1 - len(label)) // 2, label)


def _stretch(places: Mapping[str, int], edge: int, other: int) -> tuple[int, int]:
    """The first and last columns between one end's line and the next line in an arrow's direction."""
    if edge < other:
        return edge, min(column for column in places.values() if column > edge)
    return max(column for column in places.values() if column < edge), edge


def _draw_mark(line: _Line, places: Mapping[str, int], mark: Mark) -> None:
    column, last = places[mark.party], _right(places)
    line.write(column, mark.look.value)
    if column - LEFT <= last - column:
        line.write(column + 1, f" {cut(mark.text, last - column - 3)} ")
    else:
        label = f" {cut(mark.text, column - LEFT - 3)} "
        line.write(column - len(label), label)


class _Line:
    """A line of text in which any column can be overwritten."""

    def __init__(self, width: int) -> None:
        self._signs = [" "] * width

    def at(self, column: int) -> str:
        return self._signs[column]

    def write(self, column: int, label: str) -> None:
        for place, sign in enumerate(label, column):
            if 0 <= place < len(self._signs):
                self._signs[place] = sign

    def __str__(self) -> str:
        return "".join(self._signs)
