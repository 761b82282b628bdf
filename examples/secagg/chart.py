"""The chart: bytes and processor seconds, ours beside SecAgg+, on logarithmic axes, as plain SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from examples.secagg.words import part, size, time

PANELS = (
    ("up", "bytes up, a client", size),
    ("client", "processor seconds, a client", time),
    ("server", "processor seconds, a server, for each client", time),
)
SIDES = (("ours", "ours", "#2a7f9e"), ("secaggplus", "SecAgg+", "#c98a2b"))
LEFT, WIDTH, BAR, GROUP, HEAD, GAP = 130, 380, 12, 36, 30, 20
TEXT = 'font-family="sans-serif" font-size="11" fill="#808080"'
VALUES = 70
"""Room for a figure beside its bar."""


def svg(cells: Sequence[Mapping[str, Any]]) -> str:
    """The chart of some cells."""
    tall = HEAD + GROUP * len(cells) + GAP
    panels = [_panel(cells, number * tall + HEAD, *panel) for number, panel in enumerate(PANELS)]
    height = HEAD + tall * len(PANELS)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + VALUES} {height}" role="img">'
    title = f"<title>{cells[0]['weights']:,} weights: bytes and processor seconds of ours and of SecAgg+</title>"
    return "\n".join((head, title, _legend(), *panels, "</svg>", ""))


def _legend() -> str:
    entries = []
    for number, (_, label, colour) in enumerate(SIDES):
        at = LEFT + 90 * number
        entries.append(f'<rect x="{at}" y="8" width="{BAR}" height="{BAR}" fill="{colour}"/>')
        entries.append(f'<text x="{at + 18}" y="18" {TEXT}>{label}</text>')
    entries.append(f'<text x="{LEFT + 200}" y="18" {TEXT}>all axes are logarithmic</text>')
    return "\n".join(entries)


def _panel(cells: Sequence[Mapping[str, Any]], top: int, figure: str, label: str, shown: Callable[[float], str]) -> str:
    values = [cell[side][figure]["median"] for cell in cells for side, _, _ in SIDES]
    least, decades = _axis(values)
    lines = [f'<text x="{LEFT}" y="{top + 18}" {TEXT} font-weight="bold">{label}</text>']
    for row, cell in enumerate(cells):
        y = top + HEAD + GROUP * row
        lines.append(f'<text x="{LEFT - 8}" y="{y + 16}" {TEXT} text-anchor="end">{part(cell)}</text>')
        for number, (side, _, colour) in enumerate(SIDES):
            value = cell[side][figure]["median"]
            long = WIDTH * (math.log10(value) - least) / decades
            at = y + BAR * number
            lines.append(f'<rect x="{LEFT}" y="{at}" width="{long:.1f}" height="{BAR - 1}" fill="{colour}"/>')
            lines.append(f'<text x="{LEFT + long + 5:.1f}" y="{at + 10}" {TEXT}>{shown(value)}</text>')
    return "\n".join(lines)


def _axis(values: Sequence[float]) -> tuple[float, float]:
    """Where a logarithmic axis begins, and how many decades it has."""
    least, most = math.log10(min(values)) - 0.3, math.log10(max(values))
    return least, most - least
