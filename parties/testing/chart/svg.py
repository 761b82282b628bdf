"""Draws a sequence chart as SVG: one file, readable on light and dark pages, with its text as text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from xml.etree import ElementTree

from parties.testing.chart.rows import Arrow, Look, Mark, Row, cut, plain, size_text

MARGIN, TIMES, EDGE, BETWEEN = 16, 64, 210, 84
"""Widths in pixels: of the margin, of the times, where messages' names stand, and elsewhere."""

HEADING, ROW = 44, 22
"""Heights in pixels."""

LETTER = 7.0
"""An upper bound of the average width of a letter, in pixels."""

STYLE = """
svg { --paper: #ffffff; --ink: #1f2933; --faint: #66707c; --line: #c3cad2; --box: #eef2f6;
  --in: #0b62b3; --out: #0f766e; --peer: #6d3fc0; --fault: #c02626; --round: #a04f00; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #0f1419; --ink: #e4e8ec; --faint: #98a3af; --line: #3c4753; --box: #1d252e; --in: #6fb3f5;
    --out: #4fd1b9; --peer: #b79bf5; --fault: #ff8a80; --round: #f2b063; } }
text { font: 12px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: var(--ink);
  paint-order: stroke; stroke: var(--paper); stroke-width: 4px; stroke-linejoin: round; }
.paper { fill: var(--paper); } .box { fill: var(--box); stroke: var(--line); } .name { font-weight: 600; stroke: none; }
.time { font-variant-numeric: tabular-nums; fill: var(--faint); font-size: 11px; } .size { fill: var(--faint); }
.life { stroke: var(--line); stroke-width: 1.5; } .gone { stroke: var(--line); stroke-dasharray: 1 5; }
.arrow { stroke-width: 1.4; fill: none; } .in { stroke: var(--in); } .out { stroke: var(--out); }
.peer { stroke: var(--peer); }
.head { stroke: none; } .head.in { fill: var(--in); } .head.out { fill: var(--out); } .head.peer { fill: var(--peer); }
.sign { stroke: var(--paper); stroke-width: 1.5; fill: var(--faint); } .state { fill: var(--faint); }
.round { fill: var(--round); font-weight: 600; } .fault, .death { fill: var(--fault); } .birth { fill: var(--out); }
.people { fill: var(--faint); }
"""


def drawn(parties: Sequence[str], rows: Sequence[Row], edges: Collection[str], omitted: int, title: str) -> str:
    """The picture as one XML document."""
    places = _places(parties, edges)
    width = _right(places) + 40 + MARGIN
    height = HEADING + (len(rows) + 2) * ROW
    svg = ElementTree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", width=str(width), height=str(height), viewBox=f"0 0 {width} {height}"
    )
    ElementTree.SubElement(svg, "title").text = plain(title)
    ElementTree.SubElement(svg, "style").text = STYLE
    _add(svg, "rect", "paper", width=width, height=height, rx=8)
    _draw_lives(svg, places, rows)
    _draw_names(svg, places)
    if omitted:
        _write(svg, MARGIN + TIMES - 4, HEADING, f"{omitted} before", "time", "end")
    for number, row in enumerate(rows):
        if isinstance(row.drawn, Arrow):
            _draw_arrow(svg, places, edges, row.drawn, _height(number))
        else:
            _draw_mark(svg, places, row.drawn, _height(number))
    _draw_times(svg, rows)
    for child in svg:
        child.tail = "\n"
    return f"{ElementTree.tostring(svg, encoding='unicode')}\n"


def _places(parties: Sequence[str], edges: Collection[str]) -> dict[str, int]:
    """The distance of each party's line from the left, in pixels."""
    places, place = {}, MARGIN + TIMES + 24
    for name, following in pairwise([*parties, ""]):
        places[name] = place
        place += EDGE if not edges or name in edges or following in edges else BETWEEN
    return places


def _right(places: Mapping[str, int]) -> int:
    """The last line's place; what happens to a party that is alone stands to its right."""
    return max(places.values(), default=0) if len(places) != 1 else MARGIN + TIMES + 24 + EDGE


def _height(number: int) -> float:
    return HEADING + (number + 1) * ROW


def _draw_names(svg: ElementTree.Element, places: Mapping[str, int]) -> None:
    for name, place in places.items():
        label = _cut(name, BETWEEN - 16)
        width = max(36, len(label) * LETTER + 16)
        _add(svg, "rect", "box", x=place - width / 2, y=MARGIN - 4, width=width, height=24, rx=6)
        _write(svg, place, MARGIN + 8, label, "name", "middle")


def _draw_lives(svg: ElementTree.Element, places: Mapping[str, int], rows: Sequence[Row]) -> None:
    """Draw the line of each party: solid while its process runs, faint while it does not."""
    for name, place in places.items():
        _add(svg, "line", "gone", x1=place, x2=place, y1=MARGIN + 20, y2=_height(len(rows)))
        for start, end in _lives(name, rows):
            _add(svg, "line", "life", x1=place, x2=place, y1=_height(start), y2=_height(end))


def _lives(name: str, rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """The first and last rows of each life of a process."""
    began = -1
    for number, row in enumerate(rows):
        if name in row.running and began < 0:
            began = number
        elif name not in row.running and began >= 0:
            yield began, number
            began = -1
    if began >= 0:
        yield began, len(rows)


def _draw_times(svg: ElementTree.Element, rows: Sequence[Row]) -> None:
    before = ""
    for number, row in enumerate(rows):
        time = f"{row.at:.3f} s"
        if time != before:
            _write(svg, MARGIN + TIMES - 4, _height(number), time, "time", "end")
        before = time


def _draw_arrow(
    svg: ElementTree.Element, places: Mapping[str, int], edges: Collection[str], arrow: Arrow, height: float
) -> None:
    source, target = places[arrow.sender], places[arrow.receiver]
    kind = "peer" if edges and {arrow.sender, arrow.receiver} <= {*edges} else "out" if arrow.sender in edges else "in"
    back = -8 if source < target else 8
    _add(svg, "line", f"arrow {kind}", x1=source, x2=target + back, y1=height, y2=height)
    if arrow.lost:
        _write(svg, target + back, height, "×", "fault", "middle")
    else:
        points = f"{target},{height} {target + back},{height - 4} {target + back},{height + 4}"
        _add(svg, "polygon", f"head {kind}", points=points)
    at_receiver = arrow.receiver in edges and arrow.sender not in edges
    edge, other = (target, source) if at_receiver else (source, target)
    middle = edge + (EDGE // 2 if edge < other else -EDGE // 2)
    label, size = _cut(arrow.label, EDGE - 70), size_text(arrow.size)
    width = (len(label) + len(size) + 1) * LETTER + 4
    _add(svg, "rect", "paper", x=middle - width / 2, y=height - 8, width=width, height=16)
    text = _write(svg, middle, height, f"{label} ", "", "middle")
    ElementTree.SubElement(text, "tspan", {"class": "size"}).text = size


def _draw_mark(svg: ElementTree.Element, places: Mapping[str, int], mark: Mark, height: float) -> None:
    place, first, last = places[mark.party], min(places.values()), _right(places)
    kind = mark.look.name.lower()
    _add(svg, "circle", f"sign {kind}", cx=place, cy=height, r=3 if mark.look is Look.STATE else 5)
    rightwards = place - first <= last - place
    room = last - place if rightwards else place - first
    label = _cut(mark.text, room - 16)
    text = _write(svg, place + (12 if rightwards else -12), height, label, kind, "start" if rightwards else "end")
    if label != mark.text:
        ElementTree.SubElement(text, "title").text = plain(mark.text)


def _cut(text: str, room: float) -> str:
    return cut(text, int(room / LETTER))


def _write(
    parent: ElementTree.Element, across: float, down: float, label: str, kind: str, anchor: str = "start"
) -> ElementTree.Element:
    text = _add(parent, "text", kind, x=across, y=down + 4)
    text.set("text-anchor", anchor)
    text.text = label
    return text


def _add(parent: ElementTree.Element, element: str, kind: str, **attributes: float | str) -> ElementTree.Element:
    shown = {name: value if isinstance(value, str) else f"{value:g}" for name, value in attributes.items()}
    return ElementTree.SubElement(parent, element, shown | ({"class": kind} if kind else {}))
